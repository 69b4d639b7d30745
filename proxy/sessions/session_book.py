"""Which session and group a call belongs to, by what decides, strongest first:

the path, a registered API key, the x-weir-session and x-weir-group headers, the dialect's own fields, else inference: a
call that extends a known call joins its session, anything else opens one, and sessions with the same root prompt form a
group. Invariant: identifiers that do not decide are kept as data. Not here: keys (keys.py), control routes.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import xxhash

from weir.proxy.conversation.caller import Identity, Membership
from weir.proxy.errors import SessionFinished
from weir.proxy.sessions.catalog_poll import Polled
from weir.proxy.stitching.call_cache import KnownCall
from weir.proxy.stitching.continuation import Prompt
from weir.store.catalog.catalog import Catalog, SessionRow
from weir.store.clock import now_us
from weir.store.records.ids import new_id

POLL_S = 1.0
CLOCKS_APART_US = 10_000_000  # how far the clocks of machines that share a catalog may differ
_REMEMBERED = 16_384
_T = TypeVar("_T")


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

    async def membership(self, identity: Identity, prompt: Prompt) -> Membership:
        """Session and group of a call, once its prompt is known. Raises `SessionFinished`."""
        return await self.joined(identity, prompt.known if prompt.continues else None, root_group(prompt.ids.packed))

    async def joined(self, identity: Identity, parent: KnownCall | None, root: str) -> Membership:
        """Session and group of a call that continues `parent`; `root` is the group of what continues nothing.

        Raises `SessionFinished`.
        """
        session_id, group_id = identity.session_id, identity.group_id
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
            source=identity.source,
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
