"""Chooses recorded answers for supervised training: rejection sampling and best-of-n over the calls that a query names.

Invariants: every named call becomes a line or is counted under one reason; the choice is a pure function of rewards and
records. Of answers to one task the larger reward wins, then the shorter answer, then the earlier one. Answers with
equal tokens or text count once.
"""

from __future__ import annotations

import enum
import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import msgspec

from weir.store.config import StoreConfig
from weir.store.reader import StoredCall, connect, load_calls
from weir.store.records.call_record import CaptureLevel, FinishReason
from weir.trainer.data.dataset import check_conversation
from weir.trainer.errors import TrainerUsageError

COLUMNS = "call_id and reward, and if wanted task"


class Reason(enum.StrEnum):
    """Why a named call became no line."""

    UNFINISHED = "unfinished"  # aborted, failed, or ended by its length limit
    UNREWARDED = "unrewarded"  # the query gave no finite reward
    BELOW = "below_min_reward"
    NO_FORM = "neither_ids_nor_text"
    DUPLICATE = "duplicate"
    NOT_BEST = "not_best"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to keep of each task."""

    best: int | None = 1  # answers of one task; None: all
    min_reward: float | None = None
    last_turn_only: bool = False  # train on the named call's answer, and not on those before it


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A row of the query."""

    call_id: str
    reward: float | None
    task: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The lines for `weir sft`, by task and rank, and the reasons of the other calls."""

    lines: list[dict[str, Any]]
    left_out: Counter[Reason]
    num_tasks: int  # that the query names
    num_exact: int  # lines with token ids


def choose_from_store(store: StoreConfig, query: str, wanted: Wanted) -> Chosen:
    """The best recorded answers. Raises `TrainerUsageError` where the query fails, or names no or unknown calls."""
    named = list(_named(store, query))
    branches = _branches(store, [row.call_id for row in named])
    left_out: Counter[Reason] = Counter()
    tasks: dict[str, list[tuple[float, list[StoredCall]]]] = {}
    for row in named:
        branch = branches[row.call_id]
        candidates = tasks.setdefault(row.task if row.task is not None else branch[-1].group_id, [])
        if (reason := _unusable(row, branch[-1], wanted)) is not None:
            left_out[reason] += 1
        else:
            assert row.reward is not None
            candidates.append((row.reward, branch))
    lines = [line for task, found in tasks.items() for line in _best(task, found, wanted, left_out)]
    num_exact = sum("ids" in line for line in lines)
    return Chosen(lines=lines, left_out=left_out, num_tasks=len(tasks), num_exact=num_exact)


def _named(store: StoreConfig, query: str) -> Iterator[Named]:
    """The query's rows, each call once. Raises `TrainerUsageError`."""
    with connect(store) as connection:
        try:
            result = connection.execute(query)
            names = [name for name, *_ in result.description or ()]
            rows = result.fetchall()
        except duckdb.Error as error:
            raise TrainerUsageError(f"the query failed: {error}; docs/sql.md has the views") from error
    if not {"call_id", "reward"} <= set(names):
        raise TrainerUsageError(f"the query gives the columns {', '.join(names) or 'none'}; needed are {COLUMNS}")
    if not rows:
        raise TrainerUsageError("the query names no call; nothing was written")
    seen: set[str] = set()
    for row in rows:
        values = dict(zip(names, row, strict=True))
        call_id, reward, task = values["call_id"], values["reward"], values.get("task")
        if call_id is None or call_id in seen:
            raise TrainerUsageError(
                f"the query gives {'a row without call_id' if call_id is None else f'call {call_id} twice'}: name "
                "every call once, for example with GROUP BY call_id; rewards of whole sessions have no call"
            )
        seen.add(call_id)
        number = None if reward is None else float(reward)
        yield Named(call_id=str(call_id), reward=number, task=None if task is None else str(task))


def _branches(store: StoreConfig, call_ids: Sequence[str]) -> dict[str, list[StoredCall]]:
    """For each call those of its branch, from the root to itself. Raises `TrainerUsageError` for unknown calls."""
    with connect(store) as connection:
        asked = "SELECT DISTINCT session_id FROM calls WHERE call_id IN (SELECT unnest($1))"
        sessions = [name for (name,) in connection.execute(asked, [list(call_ids)]).fetchall()]
    calls = {call.call_id: call for of_one in load_calls(store, sessions).values() for call in of_one}
    if unknown := [call_id for call_id in call_ids if call_id not in calls]:
        raise TrainerUsageError(f"the query names call {unknown[0]}, which the store does not have")
    return {call_id: list(_branch(calls[call_id], calls)) for call_id in call_ids}


def _branch(call: StoredCall, calls: Mapping[str, StoredCall]) -> Iterator[StoredCall]:
    parent = None if call.parent_call is None else calls.get(call.parent_call)
    if parent is not None:
        yield from _branch(parent, calls)
    yield call


def _unusable(row: Named, call: StoredCall, wanted: Wanted) -> Reason | None:
    if call.finish != FinishReason.STOP:
        return Reason.UNFINISHED
    if row.reward is None or not math.isfinite(row.reward):
        return Reason.UNREWARDED
    if wanted.min_reward is not None and row.reward < wanted.min_reward:
        return Reason.BELOW
    return None if _has_ids(call) or _messages(call, wanted) is not None else Reason.NO_FORM


def _best(
    task: str, found: list[tuple[float, list[StoredCall]]], wanted: Wanted, left_out: Counter[Reason]
) -> Iterator[dict[str, Any]]:
    """The lines of one task, best first."""
    found.sort(key=lambda one: (-one[0], len(one[1][-1].output_ids), one[1][-1].started_us, one[1][-1].call_id))
    seen: set[str] = set()
    for reward, branch in found:
        content = _content(branch[-1])
        if content in seen:
            left_out[Reason.DUPLICATE] += 1
        elif wanted.best is not None and len(seen) == wanted.best:
            left_out[Reason.NOT_BEST] += 1
        else:
            seen.add(content)
            yield _line(task, reward, branch, wanted)


def _content(call: StoredCall) -> str:
    """A hash of prompt and answer: their tokens, else their text."""
    tokens = call.prompt_ids.tobytes() + b"|" + call.output_ids.tobytes() if _has_ids(call) else b""
    return hashlib.sha256(tokens or msgspec.json.encode([call.messages, call.answer])).hexdigest()


def _line(task: str, reward: float, branch: Sequence[StoredCall], wanted: Wanted) -> dict[str, Any]:
    call = branch[-1]
    line: dict[str, Any] = {}
    if (messages := _messages(call, wanted)) is not None:
        line |= {"messages": messages} | ({"tools": call.tools} if call.tools else {})
    if _has_ids(call):
        taught = branch[-1:] if wanted.last_turn_only else [each for each in branch if _has_ids(each)]
        spans = [[len(each.prompt_ids), len(each.prompt_ids) + len(each.output_ids)] for each in taught]
        ids = [*call.prompt_ids.tolist(), *call.output_ids.tolist()]
        line |= {"ids": ids, "targets": spans, "tokenizer": call.tokenizer}
    return line | {"call_id": call.call_id, "group_id": call.group_id, "task": task, "reward": reward}


def _has_ids(call: StoredCall) -> bool:
    """Whether the call's ids are the engine's, of a known vocabulary."""
    recorded = call.level == CaptureLevel.TOKENS and bool(call.tokenizer)
    return recorded and len(call.prompt_ids) > 0 and len(call.output_ids) > 0


def _messages(call: StoredCall, wanted: Wanted) -> list[dict[str, Any]] | None:
    """Request and answer as a conversation that every renderer writes; None where it is not one."""
    messages = [*call.messages, call.answer]
    if wanted.last_turn_only:
        earlier = [m | {"weight": 0} if m.get("role") == "assistant" else m for m in call.messages]
        messages = [*earlier, call.answer]
    try:
        check_conversation(messages)
    except (ValueError, AttributeError, TypeError):
        return None
    return messages if call.messages and call.answer.get("role") == "assistant" else None
