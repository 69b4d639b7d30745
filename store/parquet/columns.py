"""Calls as Arrow tables: the columns, and how records become rows.

Invariant: a call's prompt is the first `base_len` ids of its base's prompt and output, followed by its own
`prompt_suffix`. The base is a call of the same group, in the same file or an earlier one. `end_hash` covers the whole
prompt and output. The base only saves bytes and never changes; the parent is the one in the tree, and may become known
later (`relinks` in the catalog). Columns hold only values that cannot be derived, except the two token counts, which
save queries from reading tokens.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from weir.store.records.call_record import CallRecord, VersionSpan
from weir.store.records.token_sequence import TokenSequence
from weir.store.records.tree import CallTokens, Link

PLACE_COLUMNS = ("parent_call", "prefix_len", "depth", "root_call", "role", "twin_of", "ambiguous")
TOKEN_COLUMNS = (
    *("call_id", "session_id", "group_id", "started_us", "finished_us"),
    *("base_call", "base_len", "num_prompt_tokens", "prompt_suffix", "output_ids", "end_hash"),
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
        ("tokenizer", pa.string()),
        ("asked_sampling", pa.string()),
        ("prompt_from", pa.int32()),
        ("prompt_logprobs", pa.list_(pa.float32())),
        ("sampling_logprobs", pa.list_(pa.float32())),
        ("ignored_fields", pa.list_(pa.string())),
        ("top_ids", pa.list_(pa.int32())),
        ("top_logprobs", pa.list_(pa.float32())),
        ("engine_settings", pa.string()),
        ("routed_from", pa.int32()),
        ("routed_choices", pa.int32()),
        ("routed_experts", pa.large_binary()),
    ]
)
# Columns that a schema version added: older files lack them, and calls recorded before have NULL.
ADDED_COLUMNS = {
    2: (
        *("request_id", "choice", "cached_tokens", "digest", "num_messages", "retry_count", "forced"),
        *("counted_prompt", "counted_output"),
    ),
    3: ("tokenizer",),
    4: ("asked_sampling", "prompt_from", "prompt_logprobs"),
    5: ("sampling_logprobs",),
    6: ("ignored_fields",),
    7: ("top_ids", "top_logprobs"),
    8: ("engine_settings",),
    9: ("routed_from", "routed_choices", "routed_experts"),
}
_RECORD_FIELDS = (
    *("call_id", "session_id", "group_id", "session_source", "dialect", "level", "model", "stream"),
    *("started_us", "first_token_us", "finished_us", "held_us"),
    *("finish", "finish_matched", "stitch", "stitch_call", "stitch_differs_at", "request", "answer"),
    *("sampling", "agent_ids", "user_agent", "engine_rids", "error"),
    *("prompt_ids", "output_ids", "output_logprobs", "spans", "schema"),
    *chain.from_iterable(ADDED_COLUMNS.values()),
)


def call_tokens(record: CallRecord, before: TokenSequence | None = None) -> CallTokens:
    """A record's fields for the tree. `before` is a sequence that its prompt may begin with."""
    return CallTokens(
        call_id=record.call_id,
        session_id=record.session_id,
        started_us=record.started_us,
        finished_us=record.finished_us,
        sequence=TokenSequence(record.prompt_ids + record.output_ids, before),
        prompt_len=len(record.prompt_ids) // 4,
    )


def call_table(records: Sequence[CallRecord], places: Mapping[str, Link], end_hashes: Mapping[str, bytes]) -> pa.Table:
    """Records as a table, sorted by group, session, depth and time; parents serve as bases."""
    ordered = sorted(
        records, key=lambda r: (r.group_id, r.session_id, places[r.call_id].depth, r.started_us, r.call_id)
    )
    columns: dict[str, Any] = _fields(ordered, _RECORD_FIELDS)
    columns |= _fields([places[call_id] for call_id in columns["call_id"]], PLACE_COLUMNS)
    columns["base_call"], columns["base_len"] = columns["parent_call"], columns["prefix_len"]
    columns["num_prompt_tokens"] = [len(ids) // 4 for ids in columns["prompt_ids"]]
    columns["num_output_tokens"] = [len(ids) // 4 for ids in columns["output_ids"]]
    suffixes = [ids[4 * start :] for ids, start in zip(columns["prompt_ids"], columns["base_len"], strict=True)]
    columns["prompt_suffix"] = _packed_lists(suffixes, pa.int32())
    columns["output_ids"] = _packed_lists(columns["output_ids"], pa.int32())
    columns["output_logprobs"] = _packed_lists(columns["output_logprobs"], pa.float32())
    columns["spans"] = _span_lists(columns["spans"])
    columns["end_hash"] = [end_hashes[call_id] for call_id in columns["call_id"]]
    for name in ("finish_matched", "sampling", "agent_ids", "asked_sampling"):
        columns[name] = [_json(value) for value in columns[name]]
    columns["schema_version"] = columns["schema"]
    for name in ("digest", "routed_experts"):
        columns[name] = [value or None for value in columns[name]]
    for schema, names in ADDED_COLUMNS.items():
        if any(of < schema for of in columns["schema"]):  # records of older schema versions have NULL here
            columns |= {name: _since(schema, columns["schema"], columns[name]) for name in names}
    for name in ("prompt_logprobs", "sampling_logprobs", "top_ids", "top_logprobs"):
        columns[name] = _packed_lists([of or b"" for of in columns[name]], SCHEMA.field(name).type.value_type)
    return pa.table([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


def _fields(rows: Sequence[object], names: Sequence[str]) -> dict[str, Any]:
    """One column for each named attribute."""
    columns: Iterable[tuple[Any, ...]] = zip(*map(operator.attrgetter(*names), rows), strict=True)
    return dict(zip(names, columns, strict=True)) if rows else dict.fromkeys(names, ())


def _since(schema: int, schemas: Sequence[int], values: Sequence[Any]) -> list[Any]:
    return [value if of >= schema else None for of, value in zip(schemas, values, strict=True)]


def missing_columns(schema_version: int) -> set[str]:
    """Columns that files of that schema version lack."""
    return {name for schema, names in ADDED_COLUMNS.items() if schema > schema_version for name in names}


def _json(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _packed_lists(packed: Sequence[bytes], item: pa.DataType) -> pa.ListArray:
    """Little-endian 4-byte items as a list column, without a Python object per item."""
    data = b"".join(packed)
    values = pa.Array.from_buffers(item, len(data) // 4, [None, pa.py_buffer(data)])
    return pa.ListArray.from_arrays(_offsets(len(one) // 4 for one in packed), values, type=pa.list_(item))


def _span_lists(of_calls: Sequence[Sequence[VersionSpan]]) -> pa.ListArray:
    spans = list(chain.from_iterable(of_calls))
    columns = _fields(spans, SPAN.names)
    values = pa.StructArray.from_arrays([pa.array(columns[f.name], f.type) for f in SPAN], fields=list(SPAN))
    return pa.ListArray.from_arrays(_offsets(map(len, of_calls)), values, type=pa.list_(SPAN))


def _offsets(lengths: Iterable[int]) -> pa.Array:
    return pa.array(np.fromiter(accumulate(lengths, initial=0), np.int32))
