"""Reads recorded calls: whole, for training and notebooks (`load_calls`), or in SQL (`connect`).

Each reads one snapshot of the store, including calls that are still in the log; compaction need not have run. All times
are Unix time in microseconds. Errors are subclasses of `weir.store.errors.StoreError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.errors import VersionUnknown
from weir.store.parquet.columns import TOKEN_COLUMNS, call_tokens
from weir.store.parquet.files import groups_of_sessions, read_groups
from weir.store.parquet.prompts import list_slices, rebuild
from weir.store.query.snapshot import Snapshot, take_snapshot
from weir.store.records.call_record import (
    CallRecord,
    CaptureLevel,
    Experts,
    Logprobs,
    TokenIds,
    VersionSpan,
    unpack_experts,
    unpack_logprobs,
)
from weir.store.records.tree import CallTokens, Link, link

if TYPE_CHECKING:
    import duckdb

_BODY_COLUMNS = ("output_logprobs", "spans", "finish", "answer", "request", "sampling", "level", "tokenizer")
_OPTIONAL_COLUMNS = ("prompt_from", "prompt_logprobs", "sampling_logprobs")
_ROUTED_COLUMNS = ("routed_from", "routed_choices", "routed_experts")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StoredCall:
    """A recorded call with its tokens.

    T is the number of output tokens, P the number of prompt tokens. `output_ids`, `output_logprobs` and `versions`
    describe the same tokens, in the order in which they were sampled.

    Attributes:
        call_id: Identifier of the call, e.g. `call_019a…`.
        session_id: The session (one agent run) of the call.
        group_id: The group of the session: sessions of the same task.
        parent_call: The call that this one continues; None for a root.
        prompt_ids: Token ids of the whole prompt, int32, shape (P,).
        output_ids: Token ids of the output, int32, shape (T,).
        output_logprobs: Natural-log probabilities under the sampling distribution, float32, shape (T,).
        versions: Weight version that sampled each output token, int32, shape (T,).
        finish: Why the output ended: a value of `FinishReason`, e.g. "stop" or "length".
        answer_text: The answer's content; empty where it has none, or none that is text.
        messages: The messages of the request, as the agent sent them; empty where its body has none.
        answer: The answer's message, with role, content and tool calls; empty where it is none.
        tools: The tools of the request, as the agent sent them.
        sampling: Sampling parameters that were sent to the engine.
        started_us: When the request was read.
        finished_us: When the answer was complete.
        level: How much of the call is recorded; only `CaptureLevel.TOKENS` can be trained on.
        tokenizer: Digest of the vocabulary of the ids; empty where it is unknown.
        prompt_logprobs: Where they were asked for, of the prompt's ids at temperature 1 under the weights of the first
            output token, float32, shape (P,), NaN at the positions before the first one that was asked for; else None.
        sampling_logprobs: Where the engine gave them, of the output ids under the truncated distribution that they were
            drawn from (top_p, top_k, min_p; renormalised over the kept tokens), float32, shape (T,); else None.
        routed_experts: Where they were asked for and recorded with this call and those it continues, the experts that
            each token but the last went to, layer by layer, unsigned integers, shape (P + T - 1, layers × chosen).
    """

    call_id: str
    session_id: str
    group_id: str
    parent_call: str | None
    prompt_ids: TokenIds
    output_ids: TokenIds
    output_logprobs: Logprobs
    versions: TokenIds
    finish: str
    answer_text: str
    messages: list[dict[str, Any]]
    sampling: dict[str, Any]
    started_us: int
    finished_us: int
    level: CaptureLevel
    tokenizer: str = ""
    answer: dict[str, Any] = field(default_factory=dict)
    tools: list[dict[str, Any]] = field(default_factory=list)
    prompt_logprobs: Logprobs | None = None
    sampling_logprobs: Logprobs | None = None
    routed_experts: Experts | None = None


def connect(store: Path | str | StoreConfig, tokenizer: Path | str | None = None) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB connection with the views and macros of docs/sql.md, over the store as it is now.

    The connection is read-only and sees one snapshot, whose files are kept until it is closed.

    Args:
        store: The store's folder, an s3:// URL, or its settings.
        tokenizer: Folder of a tokenizer.json, which the macro `token_text` needs.

    Returns:
        A connection; `connect(store).sql("SELECT …").df()` gives a data frame.

    Raises:
        SchemaTooNew: A later version of Weir wrote the catalog, a file or a segment.
        StoreUnavailable: The folder, the catalog or object storage cannot be reached.
        StoreCorrupt: A shared segment is missing from object storage.
    """
    from weir.store.query.views import open_views

    config = store if isinstance(store, StoreConfig) else StoreConfig().at(str(store))
    return open_views(config, None if tokenizer is None else Path(tokenizer))


def load_calls(
    config: StoreConfig, session_ids: Sequence[str], *, catalog: Catalog | None = None, routed_experts: bool = False
) -> dict[str, list[StoredCall]]:
    """Load all calls of some sessions, with whole prompts.

    Parents are determined among all calls of a session's group.

    Args:
        config: Settings of the store; `StoreConfig(root="weir-data")` for a folder.
        session_ids: The sessions to load.
        catalog: An open catalog of the store to use; by default one is opened and closed.
        routed_experts: Also load the experts of a mixture's tokens, which may be many times the rest.

    Returns:
        The calls of each given session, sorted by start; an empty list for a session without calls.

    Raises:
        StoreCorrupt: Stored bytes do not match their hash.
        VersionUnknown: An engine named its weights by something other than an integer.
        SchemaTooNew: A later version of Weir wrote the catalog, a file or a segment.
        StoreUnavailable: The folder, the catalog or object storage cannot be reached.
    """
    snapshot = take_snapshot(config, catalog=catalog, sessions=session_ids)
    try:
        return calls_in(snapshot, session_ids, routed_experts=routed_experts)
    finally:
        snapshot.pin.release()


def calls_in(
    snapshot: Snapshot,
    session_ids: Sequence[str],
    unversioned: dict[str, VersionUnknown] | None = None,
    *,
    routed_experts: bool = False,
) -> dict[str, list[StoredCall]]:
    """Load all calls of some sessions from a snapshot that the caller holds; otherwise as `load_calls`.

    Where `unversioned` is given, a session with a version that is not an integer enters it with the reason, and gets no
    calls. Raises StoreCorrupt, and VersionUnknown where it is not given.
    """
    wanted = set(session_ids)
    groups = groups_of_sessions(snapshot.paths, session_ids)
    groups |= {record.group_id for record in snapshot.hot if record.session_id in wanted}
    optional = (*_OPTIONAL_COLUMNS, *(_ROUTED_COLUMNS if routed_experts else ()))
    table = read_groups(snapshot.paths, sorted(groups), (*TOKEN_COLUMNS, *_BODY_COLUMNS, *optional))
    bodies = _stored_bodies(table, optional)
    for record in snapshot.hot:
        if record.group_id in groups:
            bodies.setdefault(record.call_id, _hot_body(record, with_experts=routed_experts))
    found: dict[str, list[StoredCall]] = {session_id: [] for session_id in session_ids}
    for group_id in sorted(groups):
        members = {call_id: body for call_id, body in bodies.items() if body.group_id == group_id}
        places = link([body.tokens for body in members.values()])
        for body in members.values():
            session_id = body.tokens.session_id
            if session_id not in wanted:
                continue
            try:
                experts = _whole_experts(body, members, places) if routed_experts else None
                found[session_id].append(_stored_call(body, places[body.tokens.call_id].parent_call, experts))
            except VersionUnknown as unknown:
                if unversioned is None:
                    raise
                unversioned[session_id] = unknown
    for session_id in unversioned or ():
        found[session_id] = []
    for calls in found.values():
        calls.sort(key=lambda call: (call.started_us, call.call_id))
    return found


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Body:
    """The fields of a call as they are stored."""

    tokens: CallTokens
    group_id: str
    logprobs: Logprobs
    spans: Sequence[VersionSpan]
    finish: str
    answer: bytes
    request: bytes
    sampling: dict[str, Any]
    level: CaptureLevel
    tokenizer: str
    prompt_from: int | None
    prompt_logprobs: Logprobs
    sampling_logprobs: Logprobs
    routed_from: int | None = None
    experts: Experts | None = None  # from there to the last token but one


def _hot_body(record: CallRecord, *, with_experts: bool) -> _Body:
    tokens = call_tokens(record)
    routed_from = record.routed_from if with_experts else None
    return _Body(
        tokens=tokens,
        group_id=record.group_id,
        logprobs=unpack_logprobs(record.output_logprobs),
        spans=record.spans,
        finish=record.finish.value,
        answer=record.answer,
        request=record.request,
        sampling=record.sampling,
        level=record.level,
        tokenizer=record.tokenizer,
        prompt_from=record.prompt_from,
        prompt_logprobs=unpack_logprobs(record.prompt_logprobs),
        sampling_logprobs=unpack_logprobs(record.sampling_logprobs),
        routed_from=routed_from,
        experts=_experts(tokens, routed_from, record.routed_choices, record.routed_experts),
    )


def _experts(tokens: CallTokens, start: int | None, num_choices: int | None, packed: bytes | None) -> Experts | None:
    if start is None or num_choices is None or packed is None:
        return None
    return unpack_experts(packed, len(tokens.sequence) - 1 - start, num_choices)


def _stored_bodies(table: pa.Table, optional: Sequence[str]) -> dict[str, _Body]:
    logprobs = list_slices(table["output_logprobs"])
    names = ["group_id", "spans", "finish", "answer", "request", "sampling", "level", "tokenizer", *optional]
    rows = table.select(names).to_pylist()
    return {
        tokens.call_id: _Body(
            tokens=tokens,
            group_id=row["group_id"],
            logprobs=logprobs[i],
            spans=[VersionSpan(**span) for span in row["spans"]],
            finish=row["finish"],
            answer=row["answer"],
            request=row["request"],
            sampling=msgspec.json.decode(row["sampling"]),
            level=CaptureLevel(row["level"]),
            tokenizer=row["tokenizer"] or "",
            prompt_from=row["prompt_from"],
            prompt_logprobs=np.asarray(row["prompt_logprobs"] or (), np.float32),
            sampling_logprobs=np.asarray(row["sampling_logprobs"] or (), np.float32),
            routed_from=row.get("routed_from"),
            experts=_experts(tokens, *(row.get(name) for name in _ROUTED_COLUMNS)),
        )
        for i, (tokens, row) in enumerate(zip(rebuild(table), rows, strict=True))
    }


def _whole_experts(body: _Body, members: Mapping[str, _Body], places: Mapping[str, Link]) -> Experts | None:
    """The experts of all tokens of a call but the last: its own, and before them those of the calls it continues.

    None where some are not recorded.
    """
    if body.experts is None or body.routed_from is None:
        return None
    pieces, missing = [body.experts], body.routed_from
    parent = places[body.tokens.call_id].parent_call
    while missing > 0 and parent is not None:
        before = members[parent]
        if before.experts is not None and before.routed_from is not None and before.routed_from < missing:
            piece = before.experts[: missing - before.routed_from]
            if len(piece) < missing - before.routed_from or piece.shape[1] != body.experts.shape[1]:
                return None
            pieces.insert(0, piece)
            missing = before.routed_from
        parent = places[parent].parent_call
    return np.concatenate(pieces) if missing == 0 else None


def _stored_call(body: _Body, parent_call: str | None, experts: Experts | None) -> StoredCall:
    tokens = body.tokens
    return StoredCall(
        call_id=tokens.call_id,
        session_id=tokens.session_id,
        group_id=body.group_id,
        parent_call=parent_call,
        prompt_ids=tokens.prompt_ids,
        output_ids=tokens.output_ids,
        output_logprobs=body.logprobs,
        versions=token_versions(tokens.call_id, body.spans),
        finish=body.finish,
        answer_text=answer_text(body.answer),
        messages=_listed(body.request, "messages"),
        tools=_listed(body.request, "tools"),
        answer=_message(body.answer),
        sampling=body.sampling,
        started_us=tokens.started_us,
        finished_us=tokens.finished_us,
        level=body.level,
        tokenizer=body.tokenizer,
        prompt_logprobs=_prompt_logprobs(body),
        sampling_logprobs=body.sampling_logprobs if len(body.sampling_logprobs) else None,
        routed_experts=experts,
    )


def _prompt_logprobs(body: _Body) -> Logprobs | None:
    if body.prompt_from is None:
        return None
    return np.concatenate([np.full(body.prompt_from, np.nan, np.float32), body.prompt_logprobs])


def token_versions(call_id: str, spans: Sequence[VersionSpan]) -> TokenIds:
    """The weight version of every output token, int32, shape (T,). Raises VersionUnknown."""
    versions = np.zeros(spans[-1].end if spans else 0, np.int32)
    for span in spans:
        if span.version is None:
            raise VersionUnknown(
                f"call {call_id}: the engine named the weights of tokens {span.start}:{span.end} {span.label!r}, "
                "which is not an integer below 2**31; start it with an integer --weight-version, or set "
                "proxy.assumed_version, before the calls that are to be trained on"
            )
        versions[span.start : span.end] = span.version
    return versions


def answer_text(answer: bytes) -> str:
    """The content of a recorded answer; empty where it has none, or none that is text."""
    content = _message(answer).get("content")
    return content if isinstance(content, str) else ""


def _message(answer: bytes) -> dict[str, Any]:
    """A recorded answer as a message; empty where it is none."""
    message = msgspec.json.decode(answer) if answer else {}
    return message if isinstance(message, dict) else {}


def _listed(request: bytes, name: str) -> list[dict[str, Any]]:
    """A list in a recorded request; empty where the body is not JSON, is nested too deep, or has none."""
    try:
        body = msgspec.json.decode(request)
    except (msgspec.DecodeError, RecursionError):
        return []
    found = body.get(name) if isinstance(body, dict) else None
    return found if isinstance(found, list) else []
