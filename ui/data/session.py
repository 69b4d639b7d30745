"""One session: its calls as a tree, each with its new messages, label, verdicts and rewards."""

from __future__ import annotations

import difflib
import json
import re
from collections import defaultdict
from typing import Any

import duckdb

from weir.store.query.sql.views import keep_session, over_kept_session
from weir.ui.data.rows import Row, rows
from weir.ui.errors import NotFound

_SESSION = "SELECT * FROM session_rows WHERE session_id = $session"
_CALLS = f"""
SELECT
    call_id, parent_call, role, twin_of, depth, dialect, level, model, finish, error, ambiguous,
    stitch, stitch_call, stitch_differs_at, started_at, duration_ms, first_token_ms, held_ms,
    num_prompt_tokens, num_new_tokens, cached_tokens, num_output_tokens, version_min, version_max,
    spans_versions, ignored_fields, retry_count
FROM ({over_kept_session("calls")}) ORDER BY started_us, call_id
"""
_MESSAGES = f"""
SELECT call_id, role, is_answer, text, reasoning, CAST(tool_calls AS VARCHAR) AS tool_calls, tool_call_id,
    CASE WHEN text IS NULL AND reasoning IS NULL AND tool_calls IS NULL THEN CAST(content AS VARCHAR) END AS content
FROM ({over_kept_session("messages")}) WHERE is_new ORDER BY call_id, position
"""
_LABELS = over_kept_session("labels")
_REWARDS = (
    "SELECT call_id, name, value, source, created_at FROM rewards WHERE session_id = $session ORDER BY created_at"
)
_EVALUATIONS = """
SELECT call_id, compiled, correct, fault, raw_reward, speedup, CAST(result AS VARCHAR) AS result, created_at
FROM evaluations WHERE session_id = $session ORDER BY created_at
"""
_BUDGET = "SELECT * FROM stored.budgets WHERE session_id = $session"
_SIBLINGS = """
SELECT session_id, status, reward, correct, fault, num_turns, version_max FROM session_rows
WHERE group_id = $group ORDER BY reward DESC NULLS LAST, session_id LIMIT 65
"""
_ACTIONS = """
SELECT action_id, kind, person, note, message, asked_at FROM actions
WHERE subject IN ($session, $group) ORDER BY asked_at DESC LIMIT 50
"""
DIFF_CHARACTERS = 200_000  # of the code; a difference of longer lines is none to read
DIFF_LINES = 2000  # a difference of longer code can take minutes: it grows with the cube of the lines
_FENCE = re.compile(r"```([A-Za-z0-9_+-]*)[ \t]*\r?\n(.*?)(?:\r?\n```|\Z)", re.DOTALL)


def session(cursor: duckdb.DuckDBPyConnection, session_id: str) -> dict[str, Any]:
    """All that is shown of a session; `calls` are in the order of a walk through the tree. Raises NotFound."""
    named = {"session": session_id}
    found = rows(cursor, _SESSION, named)
    if not found:
        raise NotFound(
            f"there is no session {session_id!r} in this view of the store; the table of sessions has a search"
        )
    keep_session(cursor, session_id)
    calls = rows(cursor, _CALLS)
    messages = _by_call(rows(cursor, _MESSAGES))
    labels = {row["call_id"]: row for row in rows(cursor, _LABELS)}
    rewards = _by_call(rows(cursor, _REWARDS, named))
    verdicts = _by_call([_verdict(row) for row in rows(cursor, _EVALUATIONS, named)])
    for call in calls:
        name = call["call_id"]
        label = labels.get(name, {})
        call["label"], call["label_rule"], call["linked_call"] = (
            label.get(k) for k in ("label", "rule", "linked_call")
        )
        call["messages"] = [_message(message) for message in messages[name]]
        call["rewards"], call["verdicts"] = rewards[name], verdicts[name]
        if call["verdicts"]:
            _show_as_judged(call["messages"])
    walked = _walk(calls)
    _compare_attempts(walked)
    return {
        "session": found[0],
        "calls": walked,
        "rewards": rewards[None],
        "budget": _budget(rows(cursor, _BUDGET, named)),
        "group": rows(cursor, _SIBLINGS, {"group": found[0]["group_id"]}),
        "actions": rows(cursor, _ACTIONS, named | {"group": found[0]["group_id"]}),
    }


def _by_call(found: list[Row]) -> defaultdict[str | None, list[Row]]:
    kept: defaultdict[str | None, list[Row]] = defaultdict(list)
    for row in found:
        kept[row["call_id"]].append(row)
    return kept


def _budget(found: list[Row]) -> Row | None:
    """What a session may use and has used, with `used` as texts."""
    if not found:
        return None
    budget = found[0]
    used = [
        f"{budget[name]:,} of {most:,} {name.replace('_', ' ')}"
        for name in ("calls", "output_tokens")
        if (most := budget[f"max_{name}"]) is not None
    ]
    return budget | {"used": used + ([f"{budget['max_seconds']:g} s"] if budget["max_seconds"] is not None else [])}


def _message(row: Row) -> Row:
    """A message with its text split into prose and fenced code, and its tool calls read."""
    return {
        **{name: row[name] for name in ("role", "is_answer", "reasoning", "tool_call_id", "content")},
        "parts": _parts(row["text"] or ""),
        "tool_calls": _tool_calls(row["tool_calls"]),
    }


def _tool_calls(text: str | None) -> list[Row]:
    """Tool calls from their JSON; one whose numbers or nesting Python does not read is shown as it stands."""
    try:
        calls = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return [{"name": "", "arguments": text}]
    return [_tool_call(call) for call in calls] if isinstance(calls, list) else []


def _show_as_judged(messages: list[Row]) -> None:
    """Make an answer without a code block one: the judge takes all of such an answer as code."""
    for message in messages:
        parts = message["parts"]
        if message["is_answer"] and parts and not any("code" in part for part in parts):
            message["parts"] = [{"language": "", "code": "".join(part["text"] for part in parts)}]


def _tool_call(call: Any) -> Row:
    """Name and arguments of a tool call, in the form of chat completions or of Responses."""
    function = call.get("function", call) if isinstance(call, dict) else {}
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments", function.get("input", ""))
    return {
        "name": str(function.get("name", "")),
        "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, indent=1),
    }


def _parts(text: str) -> list[Row]:
    """A text as prose and code blocks in turn: {"text": …} and {"language": …, "code": …}."""
    parts: list[Row] = []
    end = 0
    for block in _FENCE.finditer(text):
        if before := text[end : block.start()]:
            parts.append({"text": before})
        parts.append({"language": block[1], "code": block[2]})
        end = block.end()
    return [*parts, {"text": text[end:]}] if text[end:] else parts


def _verdict(row: Row) -> Row:
    """An evaluation; of the whole verdict the parts that a person reads first."""
    result = json.loads(row.pop("result") or "{}")
    told = result if isinstance(result, dict) else {}
    details = told.get("details")
    log = details.get("output_tail") if isinstance(details, dict) else None
    message = told.get("fault_message") or told.get("message") or told.get("error")
    return row | {"message": message, "log": log, "result": told}


def _walk(calls: list[Row]) -> list[Row]:
    """The calls depth first, each with its `indent`: a turn stands below the turn before it, a branch is indented."""
    own = {call["call_id"] for call in calls}
    children: defaultdict[str | None, list[Row]] = defaultdict(list)
    for call in calls:
        children[call["parent_call"] if call["parent_call"] in own else None].append(call)
    walked: list[Row] = []
    todo = [(root, 0) for root in reversed(children[None])]
    while todo:
        call, indent = todo.pop()
        call["indent"] = indent
        walked.append(call)
        below = children[call["call_id"]]
        turns = [child for child in below if child["role"] == "turn"]
        # The last to be pushed is walked first: branches close to where they leave, then the next turn.
        todo += [(child, indent) for child in reversed(turns)]
        todo += [(child, indent + 1) for child in reversed(below) if child["role"] != "turn"]
    return walked


def _compare_attempts(walked: list[Row]) -> None:
    """Give each code block of an answer the unified diff to the last one of the answer before it in the walk."""
    before: dict[int, str] = {}
    for call in walked:
        for message in call["messages"]:
            for part in message["parts"] if message["is_answer"] else ():
                if "code" not in part:
                    continue
                last = before.get(call["indent"])
                if last is not None and last != part["code"]:
                    difference = code_difference(last, part["code"], "before", "now")
                    if difference is not None:
                        part["diff"] = difference
                before[call["indent"]] = part["code"]


def code_difference(one: str, other: str, name: str, other_name: str) -> list[str] | None:
    """The lines of the unified difference, none where both are alike; None where one is too long."""
    if max(len(one), len(other)) > DIFF_CHARACTERS:
        return None
    lines, other_lines = one.splitlines(), other.splitlines()
    if max(len(lines), len(other_lines)) > DIFF_LINES:
        return None
    return list(difflib.unified_diff(lines, other_lines, name, other_name, lineterm=""))
