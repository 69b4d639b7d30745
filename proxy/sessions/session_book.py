"""The session and group of a call: those that its request names, else inferred ones.

A call that extends a known call joins its session, any other unnamed call opens a session, and unnamed sessions with
the same root prompt form a group. Which name of a request decides is `conversation/caller.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import msgspec
import xxhash
from cachetools import LRUCache

from weir.proxy.conversation.caller import SERVE, Identity, Membership
from weir.proxy.errors import SessionFinished
from weir.proxy.sessions.catalog_poll import Polled
from weir.proxy.stitching.call_cache import KnownCall
from weir.proxy.stitching.continuation import Prompt
from weir.store.catalog.catalog import Catalog, SessionRow
from weir.store.clock import now_us
from weir.store.records.ids import new_id

POLL_S = 1.0
CLOCKS_APART_US = 10_000_000  # how far the clocks of machines that share a catalog may differ
REMEMBERED = 16_384  # sessions, or keys, that one process keeps in memory


def root_group(packed_ids: bytes) -> str:
    """The group of all sessions that start from these ids."""
    return "group_" + xxhash.xxh3_128_hexdigest(packed_ids)


def tags_of(metadata: dict[str, Any]) -> list[Any]:
    """The tags of a registered session: a list in its metadata."""
    tags = metadata.get("tags")
    return tags if isinstance(tags, list) else []


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a session that its calls depend on."""

    group_id: str
    is_finished: bool = False
    has_budget: bool = False
    serves: bool = False


class SessionBook:
    """Recent sessions, and the registered ones in the catalog behind them.

    Sessions that another process registers or finishes take effect here after `POLL_S` at most.
    """

    def __init__(self, catalog: Catalog, *, refuse_finished: bool, serve_keys: Collection[str] = ()) -> None:
        """`serve_keys` are names of access keys whose calls have the tag `serve`."""
        self._catalog = catalog
        self._refuse_finished = refuse_finished
        self._serve_keys = frozenset(serve_keys)
        self._sessions: LRUCache[str, Known] = LRUCache(REMEMBERED)
        self._polled = Polled(self._read_changes, POLL_S)
        self._read_until_us = now_us()

    def learn(self, row: SessionRow) -> Known:
        """Cache a session as the catalog has it."""
        known = Known(
            group_id=row.group_id,
            is_finished=row.status is not None,
            has_budget=row.has_budget,
            serves=SERVE in tags_of(row.metadata),
        )
        self._sessions[row.session_id] = known
        return known

    def seen_group(self, session_id: str) -> str | None:
        """The group of a session with a recent call, registered or not; None where there is none."""
        known = self._sessions.get(session_id)
        return None if known is None else known.group_id

    async def registered_group(self, session_id: str) -> str | None:
        """The group of a session that was seen or registered before; None where it was not."""
        known = await self._known(session_id)
        return None if known is None else known.group_id

    async def membership(self, identity: Identity, prompt: Prompt) -> Membership:
        """Session and group of a call, once its prompt is known. Raises `SessionFinished`."""
        parent = prompt.known if prompt.continues else None
        return await self.joined(identity, parent, lambda: root_group(prompt.ids.packed))

    async def joined(self, identity: Identity, parent: KnownCall | None, root: Callable[[], str]) -> Membership:
        """Session and group of a call that continues `parent`; `root` gives the group of what continues nothing.

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
            known = Known(group_id=group_id or root())
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
            serves=identity.serves or known.serves or identity.access_key in self._serve_keys,
        )
        self._sessions[session_id] = msgspec.structs.replace(known, group_id=membership.group_id)
        return membership

    async def _known(self, session_id: str) -> Known | None:
        await self._polled.fresh()
        known = self._sessions.get(session_id)
        if known is None:
            row = await asyncio.to_thread(self._catalog.find_session, session_id)
            known = self.learn(row) if row is not None else None
        return known

    async def _read_changes(self) -> None:
        """Update cached sessions that changed in the catalog since the last read."""
        since_us, self._read_until_us = self._read_until_us - CLOCKS_APART_US, now_us()
        for row in await asyncio.to_thread(self._catalog.sessions_changed_since, since_us):
            if self._sessions.get(row.session_id) is not None:
                self.learn(row)
