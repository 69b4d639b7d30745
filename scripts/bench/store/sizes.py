"""The size figures of `weir bench store`: bytes of compacted calls, compared with the same calls stored otherwise.

Invariant: every alternative stores every field of every call, with whole prompts. JSON has one line per call, without
spaces. SQLite has one row per call: its names, and the record as msgpack. A Delta table has the columns of Weir's
files; it is written in commits of 64 calls in order, with the same compression, and compacted: its final files count.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from weir.scripts.launch.errors import CommandError
from weir.store.parquet.columns import SCHEMA, call_table
from weir.store.records.call_record import CallRecord, encode_record, unpack_ids, unpack_logprobs
from weir.store.records.tree import CallRole, Link

COMMIT_CALLS = 64


def measure_sizes(data_dir: Path, aside: Path, calls: Sequence[CallRecord]) -> dict[str, float]:
    """Bytes per call of a store's files, and how many times smaller they are than the alternatives."""
    aside.mkdir()
    num_bytes = sum(path.stat().st_size for path in data_dir.iterdir())
    others = {
        "json": sum(map(_json_bytes, calls)),
        "sqlite": _sqlite_bytes(aside / "calls.sqlite", calls),
        "delta": _delta_bytes(aside / "delta", calls),
    }
    figures = {"bytes_per_call": num_bytes / len(calls)}
    figures |= {f"smaller_than_{name}": other / num_bytes for name, other in others.items()}
    return figures | _column_sizes(data_dir)


def _json_bytes(call: CallRecord) -> int:
    """The size of a record as a JSON object, with numbers for packed bytes, and bodies as they are."""
    fields: dict[str, Any] = msgspec.to_builtins(call, builtin_types=(bytes,))
    for name in ("prompt_ids", "output_ids"):
        fields[name] = unpack_ids(fields[name]).tolist()
    fields["output_logprobs"] = unpack_logprobs(fields["output_logprobs"]).tolist()
    for name in ("request", "answer"):
        fields[name] = msgspec.Raw(fields[name])
    fields["digest"] = fields["digest"].hex()
    return len(msgspec.json.encode(fields)) + 1


def _sqlite_bytes(path: Path, calls: Sequence[CallRecord]) -> int:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE calls (call_id TEXT PRIMARY KEY, session_id TEXT, group_id TEXT, record BLOB)")
        rows = ((call.call_id, call.session_id, call.group_id, encode_record(call)) for call in calls)
        db.executemany("INSERT INTO calls VALUES (?, ?, ?, ?)", rows)
    db.close()
    return path.stat().st_size


def _delta_bytes(path: Path, calls: Sequence[CallRecord]) -> int:
    try:
        from deltalake import DeltaTable, WriterProperties, write_deltalake
    except ImportError as error:
        raise CommandError("cannot compare with Delta: pip install 'weir-rl[bench]'") from error
    properties = WriterProperties(compression="ZSTD", compression_level=1)
    for table in _whole_tables(calls):
        write_deltalake(path, table, mode="append", writer_properties=properties)
    table = DeltaTable(path)
    table.optimize.compact(writer_properties=properties)
    return sum(pa.table(table.get_add_actions())["size_bytes"].to_pylist())


def _whole_tables(calls: Sequence[CallRecord]) -> Iterator[pa.Table]:
    """The rows of Weir's files with whole prompts, every call as a root."""
    schema = SCHEMA.set(SCHEMA.get_field_index("end_hash"), pa.field("end_hash", pa.binary()))
    for start in range(0, len(calls), COMMIT_CALLS):
        some = calls[start : start + COMMIT_CALLS]
        roots = {call.call_id: _root(call) for call in some}
        yield call_table(some, roots, {call.call_id: bytes(16) for call in some}).cast(schema)


def _root(call: CallRecord) -> Link:
    return Link(
        parent_call=None,
        prefix_len=0,
        depth=0,
        root_call=call.call_id,
        role=CallRole.ROOT,
        twin_of=None,
        ambiguous=False,
    )


def _column_sizes(data_dir: Path) -> dict[str, float]:
    """Compressed bytes per prompt id and per logprob in the files, including list lengths."""
    size = dict.fromkeys(("prompt_suffix", "output_logprobs"), 0)
    count = dict.fromkeys(size, 0)
    for path in data_dir.iterdir():
        groups = pq.ParquetFile(path).metadata
        for i, j in itertools.product(range(groups.num_row_groups), range(groups.num_columns)):
            column = groups.row_group(i).column(j)
            name = column.path_in_schema.split(".")[0]
            if name in size:
                size[name] += column.total_compressed_size
                count[name] += column.num_values
    return {
        "bytes_per_id": size["prompt_suffix"] / count["prompt_suffix"],
        "bytes_per_logprob": size["output_logprobs"] / count["output_logprobs"],
    }
