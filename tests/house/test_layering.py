"""Who may import whom, held against the imports that the code really has."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("agents", "engine", "kernel_eval", "proxy", "scripts", "store", "trainer")
KERNEL_EVAL_CLIENT = {"weir.kernel_eval.client", "weir.kernel_eval.protocol"}
ALLOWED = {
    "store": (),
    "proxy": ("weir.store",),
    "kernel_eval": (),
    "trainer": ("weir.store", *KERNEL_EVAL_CLIENT),
    "engine": (),
    "agents": tuple(KERNEL_EVAL_CLIENT),
    "scripts": ("weir.",),
}
FORBIDDEN_LIBRARIES = {
    "store": {"torch", "triton", "transformers", "fastapi", "starlette", "uvicorn", "aiohttp", "httpx"},
    "proxy": {"torch", "triton"},
    "agents": {"torch", "triton"},
}


def imported_modules(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
            if node.module in {"weir", *(f"weir.{part}" for part in PARTS)}:
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def sources(part: str) -> list[Path]:
    return sorted((ROOT / part).glob("*.py"))


@pytest.mark.parametrize("part", PARTS)
def test_a_part_imports_only_the_parts_that_the_layering_allows(part: str) -> None:
    assert sources(part), f"{part}/ has no sources"
    for path in sources(part):
        for module in imported_modules(path):
            if module.startswith("weir.") and not module.startswith(f"weir.{part}"):
                allowed = any(module == name or module.startswith(name) for name in ALLOWED[part])
                assert allowed, f"{path.relative_to(ROOT)} imports {module}"


@pytest.mark.parametrize("part", sorted(FORBIDDEN_LIBRARIES))
def test_a_part_does_not_import_the_libraries_that_it_must_live_without(part: str) -> None:
    for path in sources(part):
        libraries = {module.partition(".")[0] for module in imported_modules(path)}
        assert not libraries & FORBIDDEN_LIBRARIES[part], f"{path.relative_to(ROOT)}"


def test_nobody_imports_the_commands() -> None:
    for part in set(PARTS) - {"scripts"}:
        for path in sources(part):
            assert not any(module.startswith("weir.scripts") for module in imported_modules(path)), path


def test_nothing_imports_the_part_folders_as_top_level_packages() -> None:
    for part in PARTS:
        for path in sources(part):
            assert not {module.partition(".")[0] for module in imported_modules(path)} & set(PARTS), path
