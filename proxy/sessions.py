"""Which session and group a call belongs to, by what decides, strongest first:

the path, a registered API key, the x-weir-session and x-weir-group headers, the dialect's own fields, else inference: a
call that extends a known call joins its session, anything else opens one, and sessions with the same root prompt form a
group. Invariant: identifiers that do not decide are kept as data. Not here: keys (keys.py), control routes.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import xxhash

from weir.proxy.errors import BadRequest, SessionFinished
from weir.proxy.polling import Polled
from weir.proxy.stitch_memory import KnownCall
from weir.proxy.stitching import Prompt
from weir.store.catalog import Catalog, SessionRow
from weir.store.ids import new_id
from weir.store.records import SessionSource

MAX_ID_LENGTH = 200
IDEMPOTENCY_KEY = "idempotency-key"
AGENT_HEADERS = (  # identifiers of agents, kept with their calls
    *("x-session-id", "session_id", "conversation_id", "x-request-id"),
    *("x-stainless-retry-count", IDEMPOTENCY_KEY),
)
POLL_S = 1.0
CLOCKS_APART_US = 10_000_000  # how far the clocks of machines that share a catalog may differ
_REMEMBERED = 16_384
_T = TypeVar("_T")


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


def now_us() -> int:
    """Unix time in microseconds."""
    return time.time_ns() // 1000


def root_group(packed_ids: bytes) -> str:
    """The group of all sessions that start from these ids."""
    return "group_" + xxhash.xxh3_128_hexdigest(packed_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of a session."""

    group_id: str
    is_finished: bool = False
    has_budget: bool = False


class Remembered(Generic[_T]):
    """The last few thousand things that were kept, by name."""

    def __init__(self) -> None:
        self._things: OrderedDict[str, _T] = OrderedDict()

    def get(self, name: str) -> _T | None:
        """What is remembered of a name."""
        return self._things.get(name)

    def keep(self, name: str, thing: _T) -> None:
        """Remember; the oldest is forgotten where there are too many."""
        self._things[name] = thing
        self._things.move_to_end(name)
        if len(self._things) > _REMEMBERED:
            self._things.popitem(last=False)


class SessionBook:
    """The sessions of late, and the registered ones in the catalog behind them.

    What another process registers or finishes counts here after `POLL_S` at most.
    """

    def __init__(self, catalog: Catalog, *, refuse_finished: bool) -> None:
        self._catalog = catalog
        self._refuse_finished = refuse_finished
        self._sessions: Remembered[Known] = Remembered()
        self._polled = Polled(self._read_changes, POLL_S)
        self._read_until_us = now_us()

    def learn(self, row: SessionRow) -> Known:
        """What the catalog says of a session."""
        known = Known(group_id=row.group_id, is_finished=row.status is not None, has_budget=row.has_budget)
        self._sessions.keep(row.session_id, known)
        return known

    def seen_group(self, session_id: str) -> str | None:
        """The group of a session that had a call of late, registered or not."""
        known = self._sessions.get(session_id)
        return None if known is None else known.group_id

    async def registered_group(self, session_id: str) -> str | None:
        """The group of a session that was seen or registered before."""
        known = await self._known(session_id)
        return None if known is None else known.group_id

    async def membership(self, caller: Caller, prompt: Prompt) -> Membership:
        """Session and group of a call, once its prompt is known. Raises `SessionFinished`."""
        return await self.joined(caller, prompt.known if prompt.continues else None, root_group(prompt.ids.packed))

    async def joined(self, caller: Caller, parent: KnownCall | None, root: str) -> Membership:
        """Session and group of a call that continues `parent`; `root` is the group of what continues nothing.

        Raises `SessionFinished`.
        """
        session_id, group_id = caller.session_id, caller.group_id
        if session_id is None and parent is not None:
            session_id, group_id = parent.session_id, group_id or parent.group_id
        if session_id is None:
            session_id, known = new_id("session"), None
        else:
            known = await self._known(session_id)
        if known is None:
            known = Known(group_id=group_id or root)
        elif known.is_finished and self._refuse_finished:
            raise SessionFinished(
                f"The session {session_id} was finished, so it takes no more calls; register another one, or set "
                "proxy.finished_sessions to allow them."
            )
        membership = Membership(
            session_id=session_id,
            source=caller.source,
            group_id=group_id or known.group_id,
            has_budget=known.has_budget,
        )
        self._sessions.keep(session_id, replace(known, group_id=membership.group_id))
        return membership

    async def _known(self, session_id: str) -> Known | None:
        await self._polled.fresh()
        known = self._sessions.get(session_id)
        if known is None:
            row = await asyncio.to_thread(self._catalog.find_session, session_id)
            known = self.learn(row) if row is not None else None
        return known

    async def _read_changes(self) -> None:
        """Correct what is remembered by what the catalog says of sessions that changed since the last time."""
        since_us, self._read_until_us = self._read_until_us - CLOCKS_APART_US, now_us()
        for row in await asyncio.to_thread(self._catalog.sessions_changed_since, since_us):
            if self._sessions.get(row.session_id) is not None:
                self.learn(row)
