"""The tree as tests of the house see it: sources, folders, and which folder imports which.

A node of the import graph is a folder below a part, or a file at the part's root. Imports under TYPE_CHECKING do not
count: they are gone when the code runs.
"""

from __future__ import annotations

import ast
import functools
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = ("agents", "cluster", "engine", "kernel_eval", "proxy", "scripts", "store", "trainer", "ui")
FOLDERS = (*PARTS, "docs", "tests")  # that hold code
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")])
CODE = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
DATA = {Path("agents/examples")}  # task files: package data, never imported


def sources(part: str) -> list[Path]:
    """The Python files of a part, relative to the root."""
    files = (path.relative_to(ROOT) for path in (ROOT / part).rglob("*.py"))
    return sorted(path for path in files if path.parent not in DATA)


def folders(part: str) -> set[Path]:
    """The folders of a part that hold Python files, the part itself included if it does."""
    return {path.parent for path in sources(part)}


def imported_modules(path: Path, *, at_run_time: bool = False) -> Iterator[str]:
    """Dotted names that a file imports; of `from package import module` the module's own name."""
    tree = ast.parse((ROOT / path).read_text())
    skipped = set()
    if at_run_time:
        blocks = (n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test))
        skipped = {inner for block in blocks for statement in block.body for inner in ast.walk(statement)}
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            if module == "weir" or (module.startswith("weir.") and (ROOT / _path(module)).is_dir()):
                yield from (f"{module}.{alias.name}" for alias in node.names)
            else:
                yield module


def node(module: str) -> Path:
    """The node of the import graph that a module of ours belongs to. Fails where there is no such module."""
    path = _path(module)
    if (ROOT / path.with_suffix(".py")).is_file():
        return path.parent if len(path.parts) > 2 else path.with_suffix(".py")
    assert (ROOT / path).is_dir(), f"{module} is neither a module nor a folder"
    return path


@functools.cache
def import_graph() -> dict[Path, frozenset[Path]]:
    """Every node and the nodes that it imports at run time."""
    graph: dict[Path, set[Path]] = {}
    for part in PARTS:
        for path in sources(part):
            own = path.parent if len(path.parts) > 2 else path
            modules = (name for name in imported_modules(path, at_run_time=True) if name.startswith("weir."))
            graph.setdefault(own, set()).update(node(name) for name in modules)
    return {own: frozenset(imports - {own}) for own, imports in graph.items()}


def reachable(start: Path) -> set[Path]:
    """All nodes that a node imports, directly or through others."""
    graph, found, open_ = import_graph(), set(), [start]
    while open_:
        for target in graph[open_.pop()] - found:
            found.add(target)
            open_.append(target)
    return found


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of a source, each with its first line."""
    source = path.read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text is not None:
                yield node.body[0].lineno, text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _path(module: str) -> Path:
    return Path(*module.split(".")[1:])
