"""Trajectories of JSON Lines into a store: calls into its log, sessions and rewards into its catalog.

Invariants: nothing is kept unless every line of the file can be read; the same file again changes nothing, because
calls, sessions and rewards have their names from it. Not here: what a line may say (import_lines.py).
"""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from weir.store.catalog import Catalog
from weir.store.catalog_rows import RewardRow
from weir.store.config import StoreConfig
from weir.store.errors import ImportRefused, SchemaTooNew
from weir.store.export_files import FORM, PROVENANCE
from weir.store.import_lines import Line, LineCall, read_line
from weir.store.log import LogWriter
from weir.store.records import CallRecord, CaptureLevel, SessionSource, pack_ids, pack_logprobs

BATCH = 64  # records that wait for the disk together
CALL_US = 1000  # what a call without times is said to have taken


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What a file held."""

    trajectories: int
    calls: int
    sessions: int
    groups: int


def import_jsonl(config: StoreConfig, path: Path, weight_version: int | None = None) -> ImportReport:
    """Keep all trajectories of a file. `weight_version` is that of sampled tokens whose line does not say it.

    Raises ImportRefused with the line that cannot be kept, and SessionConflict where a session is there already with
    other values.
    """
    sessions: dict[str, set[str]] = defaultdict(set)  # by group
    for line in _lines(path, weight_version):
        sessions[str(line.group_id)].add(str(line.session_id))
        list(_records(line, path.name))
    if not sessions:
        raise ImportRefused(f"{path} holds no trajectory")
    _register(config, path, weight_version, sessions)
    trajectories, calls = _record(config, path, weight_version)
    return ImportReport(
        trajectories=trajectories,
        calls=calls,
        sessions=sum(map(len, sessions.values())),
        groups=len(sessions),
    )


def _lines(path: Path, weight_version: int | None) -> Iterator[Line]:
    with open(path, "rb") as file:
        for number, text in enumerate(file, 1):
            if number == 1 and _is_provenance(text, path):
                continue
            if text.strip():
                yield read_line(text.strip(), f"{path}:{number}", weight_version)


def _is_provenance(text: bytes, path: Path) -> bool:
    """Whether this is the line that an export begins with. Raises SchemaTooNew for a later form than this one."""
    try:
        head = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    if not isinstance(head, dict) or PROVENANCE not in head:
        return False
    form = head[PROVENANCE].get("form")
    if form > FORM:
        raise SchemaTooNew(
            f"{path} has form {form}, this Weir reads up to {FORM}: import it with the Weir that wrote it"
        )
    return True


def _register(config: StoreConfig, path: Path, weight_version: int | None, sessions: dict[str, set[str]]) -> None:
    catalog = Catalog.open(config)
    try:
        for line in _lines(path, weight_version):
            task = line.task or ({"task_id": line.task_id} if line.task_id else None)
            size = line.group_size or len(sessions[str(line.group_id)])
            session_id = str(line.session_id)
            catalog.register_session(
                session_id, str(line.group_id), task=task, group_size=size, metadata=line.metadata or {}, key_hash=None
            )
            catalog.add_rewards(_rewards(line, session_id))
            catalog.finish_session(
                session_id, status="failed" if line.status == "failed" else "done", info=line.info or {}
            )
    finally:
        catalog.close()


def _rewards(line: Line, session_id: str) -> list[RewardRow]:
    """The rewards as they were given; one number alone is a reward of the session."""
    if not line.rewards and line.reward is not None:
        return [
            RewardRow(
                session_id=session_id,
                call_id=None,
                name="reward",
                value=line.reward,
                source="import",
                idempotency_key="import",
            )
        ]
    return [
        RewardRow(
            session_id=session_id,
            call_id=reward.call_id,
            name=reward.name,
            value=reward.value,
            source=reward.source,
            idempotency_key=reward.idempotency_key or f"import-{i}",
        )
        for i, reward in enumerate(line.rewards)
    ]


def _record(config: StoreConfig, path: Path, weight_version: int | None) -> tuple[int, int]:
    """Append all calls, each once. Returns how many trajectories and calls there were."""
    writer = f"import-{hashlib.sha256(path.name.encode()).hexdigest()[:8]}-{time.time_ns()}"
    log = LogWriter(config.folder, writer, config)
    done: set[str] = set()
    trajectories = 0
    waiting: list[Future[None]] = []
    try:
        for trajectories, line in enumerate(_lines(path, weight_version), 1):  # noqa: B007
            for record in _records(line, path.name):
                if record.call_id not in done:
                    done.add(record.call_id)
                    waiting.append(log.append(record))
                if len(waiting) >= BATCH:
                    _wait(waiting)
        _wait(waiting)
    finally:
        log.close()
    return trajectories, len(done)


def _wait(futures: list[Future[None]]) -> None:
    for future in futures:
        future.result()
    futures.clear()


def _records(line: Line, source: str) -> Iterator[CallRecord]:
    ids = line.prompt_ids + line.completion_ids
    first, now = len(line.prompt_ids), time.time_ns() // 1000
    for i, call in enumerate(line.calls):
        logprobs = line.completion_logprobs[call.output_start - first : call.end - first]
        made_up = {"started_us": now + 2 * i * CALL_US, "finished_us": now + (2 * i + 1) * CALL_US}
        fields = {
            "session_source": SessionSource.PATH,
            "dialect": "chat",
            "model": "imported",
            "stream": False,
            **made_up,
            **{name: value for name, value in call.details.items() if name != "spans"},
            "call_id": call.call_id,
            "session_id": call.session_id,
            "group_id": line.group_id,
            "level": CaptureLevel.TOKENS,
            "prompt_ids": pack_ids(ids[: call.output_start]),
            "output_ids": pack_ids(ids[call.output_start : call.end]),
            "output_logprobs": pack_logprobs([value or 0.0 for value in logprobs]),
            "spans": call.details["spans"],
            "finish": call.finish,
            "request": _body(call.request),
            "answer": _body(call.answer),
        }
        fields["agent_ids"] = {**fields.get("agent_ids", {}), "imported_from": source}
        yield _convert(fields, call)


def _convert(fields: dict[str, Any], call: LineCall) -> CallRecord:
    try:
        return msgspec.convert(fields, CallRecord)
    except (msgspec.ValidationError, ValueError) as error:
        raise ImportRefused(f"call {call.call_id}: {error}") from error


def _body(value: Any) -> bytes:
    """A body as bytes; what never was JSON is kept as the text that it was."""
    if value is None:
        return b""
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)
