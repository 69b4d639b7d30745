"""Who is calling, as far as the request itself says: path, access key, headers, the fields of the dialect.

The strongest name decides; the others are kept as data. Sessions that must be inferred are not decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from weir.proxy.errors import BadRequest
from weir.store.records.call_record import SessionSource

MAX_ID_LENGTH = 200


IDEMPOTENCY_KEY = "idempotency-key"


AGENT_HEADERS = (  # identifiers of agents, kept with their calls
    *("x-session-id", "session_id", "conversation_id", "x-request-id"),
    *("x-stainless-retry-count", IDEMPOTENCY_KEY),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What the path of a request says."""

    session_id: str | None = None
    group_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who is calling, as far as the request itself says; None is left to inference."""

    session_id: str | None
    source: SessionSource
    group_id: str | None
    agent_ids: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The session and group of a call."""

    session_id: str
    source: SessionSource
    group_id: str
    has_budget: bool = False


def identify(
    path: Names, key_session: Names | None, headers: Mapping[str, str], hint: str | None, agent_ids: dict[str, str]
) -> Caller:
    """Let the strongest name decide. Raises `BadRequest` for a path or header that is no name."""
    header = Names(session_id=headers.get("x-weir-session"), group_id=headers.get("x-weir-group"))
    for names, where in ((path, "the path"), (header, "a header")):
        for name in (names.session_id, names.group_id):
            if name is not None and not is_name(name):
                raise BadRequest(f"{where} names a session or group {name!r:.220}; use 1 to 200 printable characters")
    key = key_session or Names()
    dialect = Names(session_id=hint if hint is not None and is_name(hint) else None)
    candidates = (
        (path, SessionSource.PATH),
        (key, SessionSource.KEY),
        (header, SessionSource.HEADER),
        (dialect, SessionSource.DIALECT),
    )
    decided = next(((n, source) for n, source in candidates if n.session_id is not None), None)
    session_id, source = (decided[0].session_id, decided[1]) if decided else (None, SessionSource.INFERRED)
    kept = dict(agent_ids)
    for name, value in (("x-weir-session", header.session_id), ("x-weir-group", header.group_id)):
        if value is not None:
            kept[name] = value
    if key.session_id is not None and source is not SessionSource.KEY:
        kept["key"] = key.session_id
    group_id = path.group_id or (decided[0].group_id if decided else None) or header.group_id
    return Caller(session_id=session_id, source=source, group_id=group_id, agent_ids=kept)


def is_name(text: str) -> bool:
    """Whether a text can name a session or a group: it becomes part of URLs, headers and tables."""
    if not 0 < len(text) <= MAX_ID_LENGTH or not text.isprintable() or text.strip() != text:
        return False
    return "/" not in text and "\ufffd" not in text  # which stands for bytes that were no text
