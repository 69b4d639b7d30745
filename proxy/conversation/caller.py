"""The caller of a request, by the names in the request itself: path, access key, headers, fields of the dialect.

The strongest name decides and the others are kept as data. Sessions that must be inferred are decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from weir.proxy.errors import BadRequest
from weir.store.records.call_record import SessionSource

MAX_ID_LENGTH = 200
TAGS_HEADER = "x-weir-tags"
SERVE = "serve"  # the tag of a product's calls, which wait for no phase of training
IDEMPOTENCY_KEY = "idempotency-key"
AGENT_HEADERS = (  # identifiers of agents, kept with their calls
    *("x-session-id", "session_id", "conversation_id", "x-request-id"),
    *("x-stainless-retry-count", IDEMPOTENCY_KEY),
)


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """A session and a group, as one part of a request names them."""

    session_id: str | None = None
    group_id: str | None = None


class Caller(NamedTuple):
    """The caller as far as it is known before the body is read."""

    path: Names
    key: Names | None  # the session whose API key the request shows
    access_key: str | None = None  # the name of the access key that it shows

    def names_itself(self, headers: Mapping[str, str]) -> bool:
        """Whether the request names its session, so that no other agent sends the same request."""
        if self.path.session_id is not None or self.key is not None:
            return True
        return "x-weir-session" in headers or IDEMPOTENCY_KEY in headers

    def reaches(self, session_id: str) -> bool:
        """Whether it may see what a session was answered: one that has a session by path or key sees that one only."""
        own = [names.session_id for names in (self.path, self.key) if names is not None and names.session_id]
        return all(name == session_id for name in own)


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Session and group of a request by its strongest name; None is left to inference."""

    session_id: str | None
    source: SessionSource
    group_id: str | None
    agent_ids: dict[str, str] = {}
    access_key: str | None = None
    serves: bool = False  # whether it has the tag `serve`


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """The session and group of a call."""

    session_id: str
    source: SessionSource
    group_id: str
    has_budget: bool = False
    serves: bool = False


def identify(caller: Caller, headers: Mapping[str, str], hint: str | None, agent_ids: dict[str, str]) -> Identity:
    """Let the strongest name decide; `hint` and `agent_ids` are the body's names.

    Raises `BadRequest` for a path or header that is no name, and for tags that are none.
    """
    path, key = caller.path, caller.key or Names()
    header = Names(session_id=headers.get("x-weir-session"), group_id=headers.get("x-weir-group"))
    for names, where in ((path, "the path"), (header, "a header")):
        for name in (names.session_id, names.group_id):
            if name is not None and not is_name(name):
                raise BadRequest(f"{where} names a session or group {name!r:.220}; use 1 to 200 printable characters")
    dialect = Names(session_id=hint if hint is not None and is_name(hint) else None)
    candidates = (
        (path, SessionSource.PATH),
        (key, SessionSource.KEY),
        (header, SessionSource.HEADER),
        (dialect, SessionSource.DIALECT),
    )
    decided = next(((n, source) for n, source in candidates if n.session_id is not None), None)
    session_id, source = (decided[0].session_id, decided[1]) if decided else (None, SessionSource.INFERRED)
    kept = agent_ids | {name: headers[name] for name in AGENT_HEADERS if name in headers}
    tags = headers.get(TAGS_HEADER)
    for name, value in (("x-weir-session", header.session_id), ("x-weir-group", header.group_id), (TAGS_HEADER, tags)):
        if value is not None:
            kept[name] = value
    if key.session_id is not None and source is not SessionSource.KEY:
        kept["key"] = key.session_id
    group_id = path.group_id or (decided[0].group_id if decided else None) or header.group_id
    return Identity(
        session_id=session_id,
        source=source,
        group_id=group_id,
        agent_ids=kept,
        access_key=caller.access_key,
        serves=_serves(tags),
    )


def named_session(caller: Caller, headers: Mapping[str, str], hint: str | None) -> str | None:
    """The session that a request names, by its strongest name; None where it names none, or by no name."""
    try:
        return identify(caller, headers, hint, {}).session_id
    except BadRequest:
        return None


def _serves(tags: str | None) -> bool:
    """Whether the tags of a header, with commas between them, have `serve`. Raises `BadRequest` for any other."""
    named = {tag.strip() for tag in (tags or "").split(",")} - {""}
    if unknown := sorted(named - {SERVE}):
        raise BadRequest(f"the header {TAGS_HEADER} names a tag {unknown[0]!r:.220}; the only one is {SERVE!r}")
    return SERVE in named


def is_name(text: str) -> bool:
    """Whether a text can name a session or a group, as a part of URLs, headers and tables."""
    if not 0 < len(text) <= MAX_ID_LENGTH or not text.isprintable() or text.strip() != text:
        return False
    return "/" not in text and "\ufffd" not in text  # the replacement for bytes that were no UTF-8
