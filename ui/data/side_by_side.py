"""Two sessions side by side: what each was and earned, and their calls in pairs with the difference of their code."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import duckdb

from weir.ui.data.rows import Row
from weir.ui.data.session import code_difference, session
from weir.ui.errors import BadQuestion

_FACTS = (
    *(
        "group_id",
        "task_id",
        "status",
        "reward",
        "correct",
        "fault",
        "version_min",
        "version_max",
        "num_turns",
        "num_calls",
    ),
    *("num_new_tokens", "num_output_tokens", "finish", "num_errors", "agent", "level", "started_at"),
)


def side_by_side(cursor: duckdb.DuckDBPyConnection, a: str, b: str) -> dict[str, Any]:
    """Two sessions, `a` and `b`, and `pairs` of their calls in the order of each tree; a missing call is None.

    `facts` are rows of name, value of a, value of b and whether they differ; rewards by name are among them. `diff` of
    a pair is the unified difference of the last code block of each answer. Raises NotFound, and BadQuestion for one
    session.
    """
    if a == b or not a or not b:
        raise BadQuestion("name two different sessions: /compare/sessions?a=SESSION&b=SESSION")
    left, right = session(cursor, a), session(cursor, b)
    return {
        "a": left["session"],
        "b": right["session"],
        "facts": _facts(left, right),
        "pairs": [_pair(one, other) for one, other in itertools.zip_longest(left["calls"], right["calls"])],
        "group": left["group"],
    }


def _facts(left: Row, right: Row) -> list[Row]:
    facts = [(name, left["session"][name], right["session"][name]) for name in _FACTS]
    earned = [{row["name"]: row["value"] for row in one["rewards"]} for one in (left, right)]
    facts += [(f"reward {name}", earned[0].get(name), earned[1].get(name)) for name in earned[0] | earned[1]]
    return [
        {"name": name, "a": one, "b": other, "differs": one != other}
        for name, one, other in facts
        if one is not None or other is not None
    ]


def _pair(one: Row | None, other: Row | None) -> Row:
    """Two calls; a message of the second that is the first's, at the same place, is marked as `same`."""
    if one is not None and other is not None:
        for mine, its in zip(one["messages"], other["messages"], strict=False):
            its["same"] = mine == its
    codes = [next(_codes(call), None) for call in (one, other)]
    return {"a": one, "b": other, "diff": _difference(*codes)}


def _codes(call: Row | None) -> Iterator[str]:
    """The code blocks of a call's answer, the last one first."""
    for message in reversed([] if call is None else call["messages"]):
        for part in reversed(message["parts"] if message["is_answer"] else []):
            if "code" in part:
                yield part["code"]


def _difference(one: str | None, other: str | None) -> list[str] | None:
    """The unified difference of two codes; None where one is missing or too long, empty where they are alike."""
    if one is None or other is None:
        return None
    return code_difference(one, other, "left", "right")
