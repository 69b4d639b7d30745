"""Reads tasks: a folder of KernelBench files and JSON Lines becomes a list of `KernelTask`.

A `.py` file is one task in KernelBench's form: `Model`, `get_inputs`, `get_init_inputs`; its module docstring is the
prompt, and the module constants `split` ("train" or "heldout") and `family` may be set to plain strings. A `.jsonl`
file holds one `KernelTask` per line. Invariant: files are parsed only, never imported or run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from weir.agents.errors import TaskError
from weir.kernel_eval.client import KernelTask
from weir.store.atomic_file import written_aside

REQUIRED = ("Model", "get_inputs", "get_init_inputs")

_decode_line = msgspec.json.Decoder(KernelTask).decode


def load_tasks(path: Path) -> list[KernelTask]:
    """The tasks of a file, or of all `*.py` and `*.jsonl` files directly in a folder, in the order of their names.

    Raises `TaskError` for a path that holds no task, a file that is not a task, or a task id that appears twice.
    """
    files = [path] if path.is_file() else sorted(p for p in path.glob("*") if p.suffix in (".py", ".jsonl"))
    if not files:
        raise TaskError(f"no tasks in {path}: expected *.py files in KernelBench's form or *.jsonl files of tasks")
    tasks = [task for file in files for task in _read(file)]
    check_unique(tasks, path)
    return tasks


def write_tasks(path: Path, tasks: Iterable[KernelTask]) -> None:
    """Write tasks as JSON Lines that `load_tasks` reads back; the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside:
        aside.write_bytes(b"".join(msgspec.json.encode(task) + b"\n" for task in tasks))


def parse_kernelbench(source: str, task_id: str) -> KernelTask:
    """One task from the text of a KernelBench file. Raises `TaskError`."""
    try:
        module = ast.parse(source)
    except SyntaxError as error:
        raise TaskError(f"task {task_id}: line {error.lineno} is not Python ({error.msg})") from error
    prompt = ast.get_docstring(module)
    if not prompt:
        raise TaskError(f"task {task_id}: no module docstring; it is the agent's prompt")
    missing = [name for name in REQUIRED if name not in definitions(module)]
    if missing:
        raise TaskError(
            f"task {task_id}: {', '.join(missing)} not defined; KernelBench's form has {', '.join(REQUIRED)}"
        )
    settings = {"family": "hand-written"} | _text_constants(module, ("split", "family"))
    try:
        return msgspec.convert(settings | {"task_id": task_id, "prompt": prompt, "reference_src": source}, KernelTask)
    except msgspec.ValidationError as error:
        raise TaskError(f'task {task_id}: {error}; split is "train" or "heldout"') from error


def _read(file: Path) -> list[KernelTask]:
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"cannot read the task file {file}: {error}") from error
    if file.suffix == ".py":
        return [parse_kernelbench(text, file.stem)]
    return [_parse_line(line, f"{file}:{number}") for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def _parse_line(line: str, where: str) -> KernelTask:
    try:
        return _decode_line(line)
    except msgspec.MsgspecError as error:
        raise TaskError(f"{where} is not a task: {error}; `weir.agents.tasks.write_tasks` writes the form") from error


class _Named(Protocol):
    @property
    def task_id(self) -> str: ...


def check_unique(tasks: Sequence[_Named], path: Path) -> None:
    """Raise `TaskError` where two tasks have the same id."""
    seen: set[str] = set()
    for task in tasks:
        if task.task_id in seen:
            raise TaskError(f"task {task.task_id} appears twice in {path}; task ids must be unique, rename one of them")
        seen.add(task.task_id)


def definitions(module: ast.Module) -> set[str]:
    """The names of a module's classes and functions."""
    return {node.name for node in module.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def _text_constants(module: ast.Module, names: tuple[str, ...]) -> dict[str, str]:
    """The module-level assignments `name = "text"` to one of `names`."""
    return {
        target.id: node.value.value
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in names
    }
