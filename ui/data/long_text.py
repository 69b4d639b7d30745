"""Long texts of a session or a call: pages show their beginning, and the rest where somebody asks for it."""

from __future__ import annotations

from typing import Any

import duckdb

from weir.ui.data.call import call, pretty
from weir.ui.data.session import session
from weir.ui.errors import NotFound

SHOWN_CHARACTERS = 50_000
_OF_A_CALL = ("sampling", "asked_sampling", "agent_ids", "request", "answer")


def rest_of_text(cursor: duckdb.DuckDBPyConnection, session_id: str, call_id: str, at: str) -> str:
    """What follows the shown beginning of a text.

    Of a call in a session's page, `at` is the way to the text in its data (`messages.2.parts.0.code`). Without a
    session it is a column of the call. Raises NotFound.
    """
    text = _in_session(cursor, session_id, call_id, at) if session_id else _in_call(cursor, call_id, at)
    if not isinstance(text, str):
        raise NotFound(f"there is no text {at!r} in call {call_id!r}; load its page again")
    return text[SHOWN_CHARACTERS:]


def _in_session(cursor: duckdb.DuckDBPyConnection, session_id: str, call_id: str, at: str) -> Any:
    found: Any = next((one for one in session(cursor, session_id)["calls"] if one["call_id"] == call_id), None)
    for step in at.split("."):
        if isinstance(found, list) and step.isdecimal() and len(step) < 10:
            found = next(iter(found[int(step) :]), None)
        else:
            found = found.get(step) if isinstance(found, dict) else None
    return found


def _in_call(cursor: duckdb.DuckDBPyConnection, call_id: str, at: str) -> str | None:
    return pretty(call(cursor, call_id)["call"][at]) if at in _OF_A_CALL else None
