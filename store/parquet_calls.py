"""Calls as Arrow tables and Parquet files: the columns, and how prompts are stored as suffixes and built up again.

Invariant: a call's prompt is the first `base_len` ids of its base's prompt and output, then its own `prompt_suffix`.
The base is a call of the same group, in the same file or an earlier one. `end_hash` covers the whole prompt and output,
and every rebuilt call is checked against it. The base is how bytes are saved, and never changes; the parent is what the
tree says, and may be found later (`relinks` in the catalog). Columns hold only what cannot be derived, but for the two
token counts, which spare queries the reading of the tokens.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from weir.store.errors import StoreCorrupt
from weir.store.records import CallRecord, TokenIds, unpack_ids
from weir.store.tree import CallRole, CallTokens, Link, end_hash

ROW_GROUP_CALLS = 4096
PLACE_COLUMNS = ("parent_call", "prefix_len", "depth", "root_call", "role", "twin_of", "ambiguous")
TOKEN_COLUMNS = (
    *("call_id", "session_id", "group_id", "started_us", "finished_us"),
    *("base_call", "base_len", "prompt_suffix", "output_ids", "end_hash"),
    *PLACE_COLUMNS,
)
SPAN = pa.struct([("start", pa.int32()), ("end", pa.int32()), ("label", pa.string())])
SCHEMA = pa.schema(
    [
        ("call_id", pa.string()),
        ("session_id", pa.string()),
        ("group_id", pa.string()),
        ("session_source", pa.string()),
        ("dialect", pa.string()),
        ("level", pa.string()),
        ("model", pa.string()),
        ("stream", pa.bool_()),
        ("started_us", pa.int64()),
        ("first_token_us", pa.int64()),
        ("finished_us", pa.int64()),
        ("held_us", pa.int64()),
        ("parent_call", pa.string()),
        ("prefix_len", pa.int32()),
        ("depth", pa.int32()),
        ("root_call", pa.string()),
        ("role", pa.string()),
        ("twin_of", pa.string()),
        ("ambiguous", pa.bool_()),
        ("base_call", pa.string()),
        ("base_len", pa.int32()),
        ("num_prompt_tokens", pa.int32()),
        ("num_output_tokens", pa.int32()),
        ("prompt_suffix", pa.list_(pa.int32())),
        ("output_ids", pa.list_(pa.int32())),
        ("output_logprobs", pa.list_(pa.float32())),
        ("spans", pa.list_(SPAN)),
        ("end_hash", pa.binary(16)),
        ("finish", pa.string()),
        ("finish_matched", pa.string()),
        ("stitch", pa.string()),
        ("stitch_call", pa.string()),
        ("stitch_differs_at", pa.int32()),
        ("request", pa.binary()),
        ("answer", pa.binary()),
        ("sampling", pa.string()),
        ("agent_ids", pa.string()),
        ("user_agent", pa.string()),
        ("engine_rids", pa.list_(pa.string())),
        ("error", pa.string()),
        ("schema_version", pa.int32()),
        ("request_id", pa.string()),
        ("choice", pa.int32()),
        ("cached_tokens", pa.int32()),
        ("digest", pa.binary()),
        ("num_messages", pa.int32()),
        ("retry_count", pa.int32()),
        ("forced", pa.int32()),
        ("counted_prompt", pa.int32()),
        ("counted_output", pa.int32()),
    ]
)
# What a schema version added: files written before hold none of it, and calls recorded before know nothing of it.
ADDED_COLUMNS = {
    2: (
        *("request_id", "choice", "cached_tokens", "digest", "num_messages", "retry_count", "forced"),
        *("counted_prompt", "counted_output"),
    )
}
_PLAIN_FIELDS = (
    *("session_id", "group_id", "session_source", "dialect", "level", "model", "stream"),
    *("started_us", "first_token_us", "finished_us", "held_us"),
    *("finish", "stitch", "stitch_call", "stitch_differs_at", "request", "answer", "user_agent", "error"),
)


def call_tokens(record: CallRecord) -> CallTokens:
    """What the tree needs of a record."""
    return CallTokens(
        call_id=record.call_id,
        session_id=record.session_id,
        started_us=record.started_us,
        finished_us=record.finished_us,
        prompt_ids=unpack_ids(record.prompt_ids),
        output_ids=unpack_ids(record.output_ids),
    )


def call_table(records: Sequence[CallRecord], places: Mapping[str, Link]) -> pa.Table:
    """Records as a table, sorted by group, session, depth and time; parents serve as bases."""
    ordered = sorted(
        records, key=lambda r: (r.group_id, r.session_id, places[r.call_id].depth, r.started_us, r.call_id)
    )
    of = [places[record.call_id] for record in ordered]
    columns: dict[str, Any] = {name: [getattr(r, name) for r in ordered] for name in _PLAIN_FIELDS}
    columns.update({name: [getattr(place, name) for place in of] for name in PLACE_COLUMNS})
    columns["call_id"] = [r.call_id for r in ordered]
    columns["base_call"], columns["base_len"] = columns["parent_call"], columns["prefix_len"]
    suffixes = [r.prompt_ids[4 * place.prefix_len :] for r, place in zip(ordered, of, strict=True)]
    columns["num_prompt_tokens"] = [len(r.prompt_ids) // 4 for r in ordered]
    columns["num_output_tokens"] = [len(r.output_ids) // 4 for r in ordered]
    columns["prompt_suffix"] = _lists(suffixes, pa.int32())
    columns["output_ids"] = _lists([r.output_ids for r in ordered], pa.int32())
    columns["output_logprobs"] = _lists([r.output_logprobs for r in ordered], pa.float32())
    columns["spans"] = [[{"start": s.start, "end": s.end, "label": s.label} for s in r.spans] for r in ordered]
    columns["end_hash"] = [end_hash(unpack_ids(r.prompt_ids + r.output_ids)) for r in ordered]
    columns["finish_matched"] = [_json(r.finish_matched) for r in ordered]
    columns["sampling"] = [_json(r.sampling) for r in ordered]
    columns["agent_ids"] = [_json(r.agent_ids) for r in ordered]
    columns["engine_rids"] = [list(r.engine_rids) for r in ordered]
    columns["schema_version"] = [r.schema for r in ordered]
    for schema, names in ADDED_COLUMNS.items():
        columns.update({name: [_known(r, name) if r.schema >= schema else None for r in ordered] for name in names})
    return pa.table({field.name: pa.array(columns[field.name], field.type) for field in SCHEMA}, schema=SCHEMA)


def _known(record: CallRecord, name: str) -> Any:
    value = getattr(record, name)
    return None if value == b"" else value


def missing_columns(schema_version: int) -> set[str]:
    """Columns that a file of this schema version does not have."""
    return {name for version, names in ADDED_COLUMNS.items() if version > schema_version for name in names}


def _json(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _lists(packed: Sequence[bytes], item: pa.DataType) -> pa.ListArray:
    """Little-endian 4-byte items as a list column, without a Python object per item."""
    offsets = np.zeros(len(packed) + 1, np.int32)
    np.cumsum([len(data) // 4 for data in packed], out=offsets[1:])
    data = b"".join(packed)
    values = pa.Array.from_buffers(item, len(data) // 4, [None, pa.py_buffer(data)])
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=pa.list_(item))


def write_calls(table: pa.Table, file: BinaryIO) -> int:
    """Write a Parquet file. Returns its size in bytes."""
    numbers = {
        "prompt_suffix.list.element": "PLAIN",
        "output_ids.list.element": "PLAIN",
        "output_logprobs.list.element": "BYTE_STREAM_SPLIT",
    }
    raw = {"end_hash", "digest", "request", "answer", "spans", *(name.split(".")[0] for name in numbers)}
    words = [f.name for f in SCHEMA if pa.types.is_string(f.type) and f.name not in raw]
    pq.write_table(
        table,
        file,
        row_group_size=ROW_GROUP_CALLS,
        compression="zstd",
        compression_level=1,
        use_dictionary=[*words, "spans.list.element.label"],
        column_encoding=numbers,
    )
    return file.tell()


def read_groups(files: Sequence[Path], group_ids: Sequence[str], columns: Sequence[str] = TOKEN_COLUMNS) -> pa.Table:
    """The stored calls of some groups."""
    return read_calls(files, {"group_id": group_ids}, columns)


def read_calls(files: Sequence[Path], wanted: Mapping[str, Sequence[str]], columns: Sequence[str]) -> pa.Table:
    """The stored calls with one of the wanted values in each named column; statistics spare most of the reading."""
    chosen = functools.reduce(operator.and_, (_one_of(column, names) for column, names in wanted.items()))
    return _dataset(files).to_table(columns=list(columns), filter=chosen)


def groups_of_sessions(files: Sequence[Path], session_ids: Sequence[str]) -> set[str]:
    """The groups in which stored calls of these sessions are."""
    found = _dataset(files).to_table(columns=["group_id"], filter=_one_of("session_id", session_ids))
    return set(found["group_id"].unique().to_pylist())


def _one_of(column: str, names: Sequence[str]) -> ds.Expression:
    return ds.field(column).isin(pa.array(names, pa.string()))


def _dataset(files: Sequence[Path]) -> ds.Dataset:
    if not files:
        return ds.dataset(SCHEMA.empty_table())
    return ds.dataset([str(path) for path in files], schema=SCHEMA, format="parquet")


def list_slices(column: pa.ChunkedArray) -> list[Any]:
    """A list column of numbers as one NumPy view a row."""
    slices: list[Any] = []
    for chunk in column.chunks:
        values = chunk.values.to_numpy(zero_copy_only=True)
        offsets = chunk.offsets.to_numpy().tolist()
        slices.extend(values[start:end] for start, end in itertools.pairwise(offsets))
    return slices


def rebuild(table: pa.Table) -> list[CallTokens]:
    """Calls with their whole prompts, in the table's order. Raises StoreCorrupt where a stored hash disagrees."""
    ids: list[str] = table["call_id"].to_pylist()
    bases, base_lens = table["base_call"].to_pylist(), table["base_len"].to_pylist()
    suffixes, outputs = list_slices(table["prompt_suffix"]), list_slices(table["output_ids"])
    ends: dict[str, TokenIds] = {}
    prompts: dict[str, TokenIds] = {}
    hashes = table["end_hash"].to_pylist()
    for row in sorted(range(len(ids)), key=lambda row: base_lens[row]):  # a base is shorter than what builds on it
        prompt = suffixes[row]
        if bases[row] is not None:
            base = ends.get(bases[row])
            if base is None or len(base) < base_lens[row]:
                raise StoreCorrupt(f"cannot rebuild call {ids[row]}: its base {bases[row]} is missing from the store")
            prompt = np.concatenate([base[: base_lens[row]], prompt])
        prompts[ids[row]] = prompt
        ends[ids[row]] = np.concatenate([prompt, outputs[row]])
        if end_hash(ends[ids[row]]) != hashes[row]:
            raise StoreCorrupt(f"call {ids[row]} does not match its stored hash: its Parquet file is damaged")
    times = zip(*(table[name].to_pylist() for name in ("session_id", "started_us", "finished_us")), strict=True)
    return [
        CallTokens(
            call_id=call_id,
            session_id=session_id,
            started_us=started_us,
            finished_us=finished_us,
            prompt_ids=prompts[call_id],
            output_ids=output,
        )
        for call_id, output, (session_id, started_us, finished_us) in zip(ids, outputs, times, strict=True)
    ]


def stored_places(table: pa.Table) -> dict[str, Link]:
    """The places in the tree that were known when the calls were compacted."""
    rows = table.select(["call_id", *PLACE_COLUMNS]).to_pylist()
    return {row.pop("call_id"): Link(**{**row, "role": CallRole(row["role"])}) for row in rows}
