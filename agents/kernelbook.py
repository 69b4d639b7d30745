"""Reads pairs of a PyTorch and a Triton source in KernelBook's form, and converts them into the form of tasks.

A row names a class (`entry_point`) and has the module that defines it (`python_code`, with `get_inputs` and
`get_init_inputs`, which returns `[args, kwargs]`) and a module with the same class in Triton, with the suffix New
(`triton_code`). Tasks name the classes `Model` and `ModelNew`, and `get_init_inputs` returns positional arguments. Rows
are parsed and never run; `sft_data.py` has them judged.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from weir.agents.errors import TaskError
from weir.agents.inductor_text import written_out

_BATCH_ROWS = 256


class NotAPair(Exception):
    """A row that cannot be converted into a task, with the reason."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a file; other fields are ignored."""

    entry_point: str
    python_code: str
    triton_code: str
    uuid: str | int | None = None
    repo_name: str | None = None
    licenses: list[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A task's reference, and a candidate that the data set claims to be correct."""

    pair_id: str
    reference_src: str
    candidate_src: str
    origin: dict[str, Any]  # repository and licences


def read_rows(path: Path) -> Iterator[tuple[str, Row | NotAPair]]:
    """Ids and rows of a `*.parquet` or `*.jsonl` file, or of all in a folder.

    An invalid row is yielded as its `NotAPair`. Raises `TaskError` at once where there are no files, and during the
    iteration for an unreadable one.
    """
    files = [path] if path.is_file() else sorted(p for p in path.glob("**/*") if p.suffix in (".parquet", ".jsonl"))
    if not files:
        raise TaskError(f"no pairs in {path}: expected *.parquet or *.jsonl files of KernelBook's form")
    return _rows_of(files)


def _rows_of(files: Iterable[Path]) -> Iterator[tuple[str, Row | NotAPair]]:
    for file in files:
        read = _read_parquet if file.suffix == ".parquet" else _read_lines
        for number, row in enumerate(read(file), start=1):
            pair_id = None if isinstance(row, NotAPair) else row.uuid
            yield f"{file.stem}-{number}" if pair_id is None else str(pair_id), row


def pair_of(pair_id: str, row: Row) -> Pair:
    """The pair of a row, in the form of tasks. Raises `NotAPair`."""
    name = row.entry_point
    if not name.isidentifier():
        raise NotAPair(f"entry_point {name!r:.80} is not a name")
    reference = _renamed(row.python_code, name, "Model")
    candidate = written_out(_renamed(row.triton_code, f"{name}New", "ModelNew"))
    module = _parse(reference, "python_code")
    if "ModelNew" not in _classes(_parse(candidate, "triton_code")):
        raise NotAPair(f"triton_code defines no class {name}New")
    model = _classes(module).get("Model")
    if model is None:
        raise NotAPair(f"python_code defines no class {name}")
    return Pair(
        pair_id=pair_id,
        reference_src=_with_positional_arguments(reference, module, model),
        candidate_src=candidate,
        origin={"repo_name": row.repo_name, "licenses": row.licenses, "entry_point": name},
    )


def _read_parquet(file: Path) -> Iterator[Row | NotAPair]:
    try:
        table = pq.ParquetFile(file)
    except (OSError, pa.ArrowException) as error:
        raise TaskError(f"{file} cannot be read as Parquet: {error}") from error
    names = [name for name in Row.__struct_fields__ if name in table.schema_arrow.names]
    for batch in table.iter_batches(_BATCH_ROWS, columns=names):
        for row in batch.to_pylist():
            yield _read(row, msgspec.convert)


def _read_lines(file: Path) -> Iterator[Row | NotAPair]:
    with file.open("rb") as lines:
        for line in lines:
            if line.strip():
                yield _read(line, msgspec.json.decode)


def _read(row: Any, into: Callable[..., Row]) -> Row | NotAPair:
    try:
        return into(row, type=Row)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return NotAPair(f"no row of KernelBook's form: {error}")


def _renamed(source: str, old: str, new: str) -> str:
    return re.sub(rf"\b{re.escape(old)}\b", new, source)


def _parse(source: str, field: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise NotAPair(f"{field} is not Python: {error}") from error


def _classes(module: ast.Module) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}


def _with_positional_arguments(source: str, module: ast.Module, model: ast.ClassDef) -> str:
    """Rewrite `return [args, kwargs]` in get_init_inputs to arguments in the order of Model's constructor."""
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    if "get_inputs" not in functions or "get_init_inputs" not in functions:
        raise NotAPair("python_code does not define get_inputs and get_init_inputs")
    found = functions["get_init_inputs"]
    match found.body:
        case [ast.Return(ast.List([ast.List(args), ast.Dict(names, values)]))]:
            arguments = _positional(args, dict(zip(map(_text, names), values, strict=True)), model)
            lines = source.splitlines(keepends=True)
            lines[found.lineno - 1 : found.end_lineno] = [
                f"def get_init_inputs():\n    return [{', '.join(map(ast.unparse, arguments))}]\n"
            ]
            return "".join(lines)
        case _:
            return source


def _positional(args: list[ast.expr], named: dict[str, ast.expr], model: ast.ClassDef) -> list[ast.expr]:
    if not named:
        return args
    constructor = next((n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    if constructor is None:
        raise NotAPair(f"get_init_inputs names {sorted(named)}, and the class has no constructor of its own")
    own = constructor.args.args[1:]
    defaults = dict(zip(reversed([one.arg for one in own]), reversed(constructor.args.defaults), strict=False))
    arguments = list(args)
    for parameter in own[len(args) :]:
        if not named:
            break
        value = named.pop(parameter.arg, defaults.get(parameter.arg))
        if value is None:
            raise NotAPair(f"get_init_inputs gives no value for {parameter.arg}")
        arguments.append(value)
    if named:
        raise NotAPair(f"the constructor takes no {', '.join(sorted(named))} by position")
    return arguments


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
