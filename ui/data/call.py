"""One call: everything recorded of it, and its tokens, prompt and answer."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import numpy as np
from tokenizers import Tokenizer

from weir.store.parquet.columns import TOKEN_COLUMNS
from weir.store.parquet.prompts import rebuild
from weir.store.parquet.round_tokens import DROPPED, PART_NAMES, read_round_call
from weir.ui.data.rows import Row, rows
from weir.ui.errors import NotFound

_CALL = """
SELECT * EXCLUDE (output_ids, output_logprobs, sampling_logprobs, top_ids, top_logprobs, prompt_logprobs, spans,
        routed_experts, started_us, first_token_us, finished_us, request, answer, sampling,
        asked_sampling, agent_ids, tool_calls, finish_matched),
    CAST(request AS VARCHAR) AS request, CAST(answer AS VARCHAR) AS answer, CAST(sampling AS VARCHAR) AS sampling,
    CAST(asked_sampling AS VARCHAR) AS asked_sampling, CAST(agent_ids AS VARCHAR) AS agent_ids,
    CAST(finish_matched AS VARCHAR) AS finish_matched
FROM calls WHERE call_id = $call
"""
_CHAIN = f"""
WITH RECURSIVE links AS MATERIALIZED (SELECT call_id, base_call FROM stored.calls WHERE group_id = $group),
chain AS (
    SELECT call_id, base_call FROM links WHERE call_id = $call
    UNION SELECT b.call_id, b.base_call FROM links b JOIN chain c ON b.call_id = c.base_call
)
SELECT {", ".join(TOKEN_COLUMNS)} FROM stored.calls
WHERE group_id = $group AND call_id IN (SELECT call_id FROM chain)
"""
_LOGPROBS = """
SELECT output_logprobs, sampling_logprobs, prompt_from, prompt_logprobs FROM calls WHERE call_id = $call
"""
_VERSIONS = "SELECT list(version ORDER BY position) AS versions FROM tokens WHERE call_id = $call"
_ROUND = """
SELECT r.round_id, CAST(r.manifest AS VARCHAR) AS manifest
FROM stored.round_groups g JOIN stored.rounds r USING (round_id) WHERE g.group_id = $group AND r.state = 'committed'
"""


def call(cursor: duckdb.DuckDBPyConnection, call_id: str) -> dict[str, Any]:
    """Everything recorded of a call but its tokens. Raises NotFound."""
    return {"call": _found(rows(cursor, _CALL, {"call": call_id}), call_id)}


def call_tokens(
    cursor: duckdb.DuckDBPyConnection, call_id: str, tokenizer: Path | None, kept: Path | None
) -> dict[str, Any]:
    """The tokens of prompt and answer: parallel lists, one item a token.

    `pieces` are texts (without a tokenizer, the ids), `logprobs` natural logarithms under the sampling distribution,
    None where none was recorded; `trained` is 1 for a token of a call that a committed round took, 0 for one of a
    prompt and of a call that it left out, None where no round has taken the call. What the round kept of its tokens
    (`trainer.keep_tokens`, in the file `kept`) are `masks`, texts that say whether a token was trained on or why not,
    and the trainer's `advantages`, `trainer_logprobs` and `entropies` (nats), and `ratios`, exp(trainer's logprob -
    the one that it compares with). Raises NotFound, StoreCorrupt and StoreUnavailable.
    """
    named = {"call": call_id}
    group = _group_of(cursor, call_id)
    chain = cursor.sql(_CHAIN, params=named | {"group": group}).to_arrow_table()
    tokens = next(one for one in rebuild(chain) if one.call_id == call_id)
    ids = tokens.sequence.ids(0, len(tokens.sequence)).tolist()
    start = tokens.prompt_len
    recorded = rows(cursor, _LOGPROBS, named)[0]
    versions = rows(cursor, _VERSIONS, named)[0]["versions"] or []
    pieces, note = _pieces(tokenizer, ids)
    return {
        "ids": ids,
        "pieces": pieces,
        "logprobs": _prompt_logprobs(recorded, start) + _numbers(recorded["output_logprobs"], len(ids) - start),
        "sampling_logprobs": [None] * start + _numbers(recorded["sampling_logprobs"], len(ids) - start),
        "versions": [None] * start + (versions or [None] * (len(ids) - start)),
        **_of_round(cursor, group, call_id, kept, start, len(ids) - start),
        "output_start": start,
        "note": note,
    }


def round_of_call(cursor: duckdb.DuckDBPyConnection, call_id: str) -> int | None:
    """The committed round that took the call's group. Raises NotFound."""
    found = rows(cursor, _ROUND, {"group": _group_of(cursor, call_id)})
    return int(found[0]["round_id"]) if found else None


def _group_of(cursor: duckdb.DuckDBPyConnection, call_id: str) -> str:
    found = rows(cursor, "SELECT group_id FROM stored.calls WHERE call_id = $call", {"call": call_id})
    return str(_found(found, call_id)["group_id"])


def _found(found: list[Row], call_id: str) -> Row:
    if not found:
        raise NotFound(f"there is no call {call_id!r} in this view of the store")
    return found[0]


def _prompt_logprobs(recorded: Row, length: int) -> list[float | None]:
    first = recorded["prompt_from"]
    if first is None:
        return [None] * length
    return ([None] * first + _numbers(recorded["prompt_logprobs"], length - first))[:length]


def _numbers(values: Sequence[float] | np.ndarray[Any, Any] | None, length: int) -> list[float | None]:
    """The values, None for NaN; as many None where none were recorded."""
    if values is None or len(values) == 0:
        return [None] * length
    return [None if value is None or np.isnan(value) else float(value) for value in values]


def _of_round(
    cursor: duckdb.DuckDBPyConnection, group: str, call_id: str, kept_at: Path | None, start: int, length: int
) -> dict[str, list[Any]]:
    """What the committed round of the group did with each token, `start` of the prompt and `length` of the answer."""
    found = rows(cursor, _ROUND, {"group": group})
    if not found:
        return _lists(start, length, None, None)
    groups = json.loads(found[0]["manifest"] or "{}").get("groups", [])
    if not any(call_id in calls for one in groups for calls in one["calls"].values()):
        return _lists(start, length, 0, "not in the round")
    kept = None if kept_at is None else read_round_call(kept_at, call_id)
    if kept is None:
        return _lists(start, length, 1, "trained")
    if kept.left_out is not None:
        return _lists(start, length, 0, f"left out: {kept.left_out}")
    lists = _lists(start, length, 1, "trained", kept.advantage)
    trace = kept.trace
    if trace is None or len(trace.parts) != length:
        return lists
    before = [None] * start
    return lists | {
        "masks": ["prompt"] * start + [PART_NAMES[part] for part in trace.parts],
        "trained": [0] * start + [int(part != DROPPED) for part in trace.parts],
        "advantages": before + _numbers(trace.advantages, length),
        "trainer_logprobs": before + _numbers(trace.logprobs, length),
        "entropies": before + _numbers(trace.entropies, length),
        "ratios": before + _numbers(np.exp(trace.logprobs.astype(np.float64) - trace.before), length),
    }


def _lists(
    start: int, length: int, trained: int | None, mask: str | None, advantage: float | None = None
) -> dict[str, list[Any]]:
    """The same for every token of the answer."""
    nothing = [None] * (start + length)
    return {
        "trained": [0] * start + [trained] * length,
        "masks": ["prompt"] * start + [mask] * length,
        "advantages": [None] * start + [advantage] * length,
        "trainer_logprobs": nothing,
        "entropies": nothing,
        "ratios": nothing,
    }


def _pieces(folder: Path | None, ids: list[int]) -> tuple[list[str], str]:
    """The text of each token by itself; a token that is a part of a character shows U+FFFD."""
    if folder is None or not (folder / "tokenizer.json").exists():
        return [
            f"{token} " for token in ids
        ], "Texts of tokens need the model's tokenizer: set model.path, or give weir ui --tokenizer."
    return _tokenizer(folder).decode_batch([[i] for i in ids], skip_special_tokens=False), ""


@functools.lru_cache(maxsize=2)
def _tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def pretty(text: str | None) -> str:
    """JSON with indents; other text as it is."""
    try:
        return msgspec.json.format((text or "").encode(), indent=2).decode()
    except (msgspec.DecodeError, RecursionError):  # text, or nested too deep
        return text or ""
