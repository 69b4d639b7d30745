"""Sessions as a table, and their calls as trees, in the terminal."""

from __future__ import annotations

import datetime
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

from weir.scripts.cli.terminal.call_text import call_text, console_for_text, plain
from weir.store.errors import SessionUnknown

if TYPE_CHECKING:
    import duckdb
    from rich.tree import Tree

MANY = 20  # ids listed where a prefix matches several

_SESSIONS = """
SELECT session_id, group_id, status, num_calls, num_turns, num_new_tokens, num_output_tokens, num_refused, reward,
    version_min, version_max, coalesce(first_call_at, created_at) AS started_at
FROM sessions WHERE starts_with(group_id, $1) ORDER BY started_at DESC, session_id LIMIT $2
"""
_REFUSED_ELSEWHERE = """
SELECT sum(num_requests)::BIGINT AS num_requests
FROM refusals WHERE session_id IS NULL OR session_id NOT IN (SELECT session_id FROM sessions)
"""
_CALLS = """
WITH judged AS (
    SELECT call_id, arg_max(raw_reward, created_at) AS raw_reward, arg_max(fault, created_at) AS fault
    FROM evaluations GROUP BY call_id
), rewarded AS (
    SELECT call_id, arg_max(value, created_at) AS value FROM rewards WHERE call_id IS NOT NULL GROUP BY call_id
)
SELECT c.call_id, c.session_id, c.parent_call, c.role, c.finish, c.level, c.ambiguous, c.error,
    c.stitch, c.stitch_call, c.stitch_differs_at, l.label, l.rule AS label_rule, l.linked_call, c.retry_count,
    c.num_prompt_tokens, c.num_new_tokens, c.cached_tokens, c.num_output_tokens, c.spans, c.held_ms,
    CAST(c.request AS VARCHAR) AS request, CAST(c.answer AS VARCHAR) AS answer,
    coalesce(r.value, j.raw_reward) AS reward, j.fault
FROM calls c LEFT JOIN labels l USING (call_id) LEFT JOIN judged j USING (call_id) LEFT JOIN rewarded r USING (call_id)
WHERE c.session_id IN (SELECT unnest($1)) ORDER BY c.started_us, c.call_id
"""


def print_sessions(connection: duckdb.DuckDBPyConnection, group: str | None, limit: int) -> None:
    """Print one line per session, the latest first."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("session", "group", "status"):
        table.add_column(name, overflow="fold")
    for name in ("calls", "turns", "tokens in", "out", "refused", "reward", "versions", "age"):
        table.add_column(name, justify="right")
    rows = _rows(connection, _SESSIONS, [group or "", limit])
    for row in rows:
        table.add_row(
            row["session_id"],
            row["group_id"],
            row["status"] or "seen",
            *(f"{row[name]:,}" for name in ("num_calls", "num_turns", "num_new_tokens", "num_output_tokens")),
            f"{row['num_refused']:,}" if row["num_refused"] else "",
            "" if row["reward"] is None else f"{row['reward']:.3g}",
            _version_range(row["version_min"], row["version_max"]),
            _age(row["started_at"]),
        )
    console = console_for_text()
    console.print(table)
    [elsewhere] = _rows(connection, _REFUSED_ELSEWHERE, [])
    if elsewhere["num_requests"]:
        asked = "request was" if elsewhere["num_requests"] == 1 else "requests were"
        console.print(
            f"{elsewhere['num_requests']:,} more {asked} refused, of no session above: weir sql 'FROM refusals' has why"
        )


def print_trees(connection: duckdb.DuckDBPyConnection, name: str, whole_text: bool) -> None:
    """Print the trees of the sessions that match a session or group id, or a prefix of one. Raises SessionUnknown."""
    sessions = _named_sessions(connection, name)
    calls: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for call in _rows(connection, _CALLS, [[session["session_id"] for session in sessions]]):
        calls[call["session_id"]].append(call)
    console = console_for_text()
    for session in sessions:
        console.print(_session_tree(session, calls[session["session_id"]], whole_text))


def _named_sessions(connection: duckdb.DuckDBPyConnection, name: str) -> list[dict[str, Any]]:
    for exact in (True, False):
        fits = "= $1" if exact else "LIKE replace(replace($1, '_', '\\_'), '%', '\\%') || '%' ESCAPE '\\'"
        for column in ("session_id", "group_id"):
            found = _rows(connection, f"SELECT * FROM sessions WHERE {column} {fits} ORDER BY session_id", [name])
            named = sorted({session[column] for session in found})
            if len(named) == 1:
                return found
            if named:
                listed = ", ".join(named[:MANY]) + (", …" if len(named) > MANY else "")
                raise SessionUnknown(f"{name!r} fits {len(named)} ids: {listed}; give more of the id")
    raise SessionUnknown(f"there is no session or group whose id is or begins with {name!r}; see `weir sessions`")


def _session_tree(session: dict[str, Any], calls: list[dict[str, Any]], whole_text: bool) -> Tree:
    from rich.tree import Tree

    reward = "" if session["reward"] is None else f"  reward {session['reward']:.3g}"
    status = session["status"] or "seen"
    tree = Tree(
        f"[bold]{plain(session['session_id'])}[/]  group {plain(session['group_id'])}  {status}  "
        f"{session['num_calls']} calls{reward}",
        highlight=False,
    )
    own = {call["call_id"] for call in calls}
    children: dict[str | None, list[dict[str, Any]]] = defaultdict(list)
    for call in calls:
        children[call["parent_call"] if call["parent_call"] in own else None].append(call)
    todo = deque((call, tree) for call in children[None])
    while todo:
        call, line = todo.popleft()
        is_head = call["role"] != "turn" or call["parent_call"] not in own
        node = line.add(call_text(call, is_head, whole_text))
        for child in children[call["call_id"]]:
            # A turn stands below the turn before it, so that a conversation is a list; what branches off is indented.
            todo.append((child, line if child["role"] == "turn" and not is_head else node))
    return tree


def _version_range(low: int | None, high: int | None) -> str:
    if low is None:
        return ""
    return f"{low}" if low == high else f"{low}–{high}"


def _age(at: datetime.datetime | None) -> str:
    if at is None:
        return ""
    seconds = (datetime.datetime.now(datetime.UTC).replace(tzinfo=None) - at).total_seconds()
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _rows(connection: duckdb.DuckDBPyConnection, query: str, values: list[Any]) -> list[dict[str, Any]]:
    result = connection.execute(query, values)
    names = [name for name, *_ in result.description]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]
