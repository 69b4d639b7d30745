"""Who may import whom: the tables of ARCHITECTURE.md compared with the imports that the code has."""

from __future__ import annotations

import graphlib
import re
from pathlib import Path

import pytest
from support_house import PARTS, ROOT, folders, import_graph, imported_modules, reachable, sources

KERNEL_EVAL_CLIENT = ("weir.kernel_eval.client", "weir.kernel_eval.protocol")
ALLOWED = {  # modules and packages of other parts
    "store": (),
    "proxy": ("weir.store",),
    "kernel_eval": (),
    "trainer": (
        "weir.store",
        "weir.proxy.engines.router_routes",
        "weir.engine.transfer.adapter",
        "weir.engine.transfer.block_delta",
        "weir.engine.transfer.bucket",
        "weir.engine.transfer.group",
        "weir.engine.transfer.shared_memory",
        *KERNEL_EVAL_CLIENT,
    ),
    "engine": (),
    "cluster": ("weir.store",),
    "agents": ("weir.store.atomic_file", "weir.kernel_eval.sandbox", *KERNEL_EVAL_CLIENT),
    "scripts": ("weir",),
    "ui": ("weir.store",),
}
FORBIDDEN_LIBRARIES = {
    "store": {"torch", "triton", "transformers", "fastapi", "starlette", "uvicorn", "aiohttp", "httpx"},
    "proxy": {"torch", "triton"},
    "agents": {"torch", "triton"},
    "cluster": {"torch", "triton", "transformers"},
    "ui": {"torch", "triton", "transformers"},
    "kernel_eval/server": {"torch", "triton"},
    "trainer/settings": {"torch"},
    "trainer/credit": {"torch"},
}
TABLE_ROW = re.compile(r"^\| `([a-z_/]+)/` \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
NOTHING = "—"


def documented() -> dict[Path, list[Path]]:
    """The folder tables of ARCHITECTURE.md: a folder and the folders of its part that it imports, in their order."""
    rows = {}
    for name, imports in TABLE_ROW.findall((ROOT / "ARCHITECTURE.md").read_text()):
        folder = Path(name)
        if len(folder.parts) > 1:
            names = [] if imports.strip() == NOTHING else imports.split(", ")
            rows[folder] = [Path(folder.parts[0], one.strip()) for one in names]
    return rows


def below(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


@pytest.mark.parametrize("part", PARTS)
def test_a_part_imports_only_what_it_may_of_other_parts(part: str) -> None:
    assert sources(part), f"{part}/ has no sources"
    for path in sources(part):
        for module in imported_modules(path):
            if below(module, "weir") and not below(module, f"weir.{part}"):
                assert any(below(module, allowed) for allowed in ALLOWED[part]), f"{path} imports {module}"


def test_nobody_imports_the_commands() -> None:
    for part in set(PARTS) - {"scripts"}:
        for path in sources(part):
            assert not any(below(module, "weir.scripts") for module in imported_modules(path)), path


@pytest.mark.parametrize("place", sorted(FORBIDDEN_LIBRARIES))
def test_a_place_does_not_import_the_libraries_that_it_must_live_without(place: str) -> None:
    checked = [path for path in sources(place.split("/")[0]) if path.is_relative_to(place)]
    assert checked
    for path in checked:
        libraries = {module.partition(".")[0] for module in imported_modules(path, at_run_time=True)}
        assert not libraries & FORBIDDEN_LIBRARIES[place], path


def test_nothing_imports_the_part_folders_as_top_level_packages() -> None:
    for part in PARTS:
        for path in sources(part):
            assert not {module.partition(".")[0] for module in imported_modules(path)} & set(PARTS), path


def test_no_folder_imports_itself_through_others() -> None:
    order = list(graphlib.TopologicalSorter(import_graph()).static_order())  # raises CycleError with the circle
    assert set(order) == set(import_graph())


def test_the_architecture_names_every_folder_that_holds_code_and_no_other() -> None:
    of_code = {folder for part in PARTS for folder in folders(part) if len(folder.parts) > 1}
    assert set(documented()) == of_code


def test_the_architecture_lists_the_imports_that_each_folder_has() -> None:
    graph = import_graph()
    for folder, listed in documented().items():
        inside = {target for target in graph[folder] if target.parts[0] == folder.parts[0] and target.suffix != ".py"}
        assert set(listed) == inside, f"{folder}/ imports {sorted(map(str, inside))}"


def test_a_folder_imports_only_folders_that_stand_below_it_in_its_table() -> None:
    order = list(documented())
    for folder, listed in documented().items():
        for target in listed:
            assert order.index(target) > order.index(folder), f"{folder}/ stands below {target}/, which it imports"


@pytest.mark.parametrize("folder", sorted(str(f) for f in folders("kernel_eval") if "judge" in f.parts))
def test_the_judge_needs_nothing_of_what_runs_or_compiles_candidates(folder: str) -> None:
    assert not reachable(Path(folder)) & {Path("kernel_eval/worker"), Path("kernel_eval/compiler")}
