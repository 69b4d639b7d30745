"""The operations behind the control routes on sessions and rewards, and the control key."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from weir.proxy.control.gates import GateControl
from weir.proxy.control.schemas import FinishSession, NewReward, NewSession
from weir.proxy.conversation.caller import is_name
from weir.proxy.errors import BadRequest, NoSuchRoute
from weir.proxy.sessions.access_keys import session_key
from weir.proxy.sessions.session_book import SessionBook
from weir.store.catalog.budgets import find_budget
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.keys import key_hash
from weir.store.catalog.rows import Budget, RewardRow
from weir.store.records.ids import new_id


class Control:
    """Sessions, rewards and the state that the control routes read."""

    def __init__(
        self,
        *,
        key: str,
        public_url: str | None,
        gates: GateControl,
        catalog: Catalog,
        sessions: SessionBook,
        is_ready: Callable[[], Awaitable[bool]],
        check_engines: Callable[[], Awaitable[None]],
        has_in_flight: Callable[[str], bool],
        group_of: Callable[[str], Awaitable[str | None]],
    ) -> None:
        self.key = key
        self.gates = gates
        self.is_ready = is_ready
        self.check_engines = check_engines
        self.has_in_flight = has_in_flight
        self._group_of = group_of
        self._public_url = public_url
        self._catalog = catalog
        self._sessions = sessions

    async def register(self, new: NewSession, base: str) -> dict[str, Any]:
        """Register a session and derive its API key; idempotent. Raises `BadRequest` or `SessionConflict`."""
        session_id = new.session or new_id("session")
        for name in filter(None, (session_id, new.group)):
            if not is_name(name):
                raise BadRequest(f"{name!r:.220} cannot name a session or group; use 1 to 200 printable characters")
        group_id = new.group or await self._sessions.registered_group(session_id) or new_id("group")
        key = session_key(self.key, session_id)
        await asyncio.to_thread(
            self._catalog.register_session,
            session_id,
            group_id,
            task=new.task,
            group_size=new.group_size,
            metadata=new.metadata | ({"tags": new.tags} if new.tags else {}),
            key_hash=key_hash(key),
            budget=Budget(**new.budget.model_dump()),
        )
        await self._learn(session_id)
        url = f"{(self._public_url or base).rstrip('/')}/s/{quote(session_id, safe='')}/v1"
        return {"session": session_id, "group": group_id, "base_url": url, "api_key": key}

    async def show(self, session_id: str) -> dict[str, Any]:
        """A registered session as JSON. Raises `NoSuchRoute` for an unknown one."""
        row = await asyncio.to_thread(self._catalog.find_session, session_id)
        if row is None:
            raise NoSuchRoute(f"No session {session_id:.200} was registered.")
        return {
            "session": row.session_id,
            "group": row.group_id,
            "metadata": row.metadata,
            "status": row.status,
            "info": row.info,
            "created_us": row.created_us,
            "finished_us": row.finished_us,
            "budget": await self._budget_of(session_id) if row.has_budget else None,
        }

    async def finish(self, session_id: str, body: FinishSession) -> dict[str, Any]:
        """Finish a session; one that only had calls is registered first. Raises `SessionUnknown`."""
        await self._ensure_registered(session_id)
        await asyncio.to_thread(self._catalog.finish_session, session_id, status=body.status, info=body.info)
        await self._learn(session_id)
        return {"session": session_id, "status": body.status}

    async def reward(self, rewards: list[NewReward]) -> list[bool]:
        """Attach rewards, all or none; for each, whether it is new. Raises `SessionUnknown` or `RewardConflict`."""
        for session_id in {new.session for new in rewards}:
            await self._ensure_registered(session_id)
        rows = [
            RewardRow(
                session_id=new.session,
                call_id=new.call,
                name=new.name,
                value=new.value,
                source=new.source,
                idempotency_key=new.idempotency_key,
            )
            for new in rewards
        ]
        return await asyncio.to_thread(self._catalog.add_rewards, rows)

    async def _budget_of(self, session_id: str) -> dict[str, Any] | None:
        budget = await asyncio.to_thread(find_budget, self._catalog, session_id)
        if budget is None:
            return None
        return {name: value for name, value in asdict(budget).items() if name != "session_id"}

    async def _learn(self, session_id: str) -> None:
        row = await asyncio.to_thread(self._catalog.find_session, session_id)
        if row is not None:
            self._sessions.learn(row)

    async def _ensure_registered(self, session_id: str) -> None:
        """Register a session that only had calls, here or at any other proxy of the store."""
        if await asyncio.to_thread(self._catalog.find_session, session_id) is not None:
            return
        group_id = self._sessions.seen_group(session_id) or await self._group_of(session_id)
        if group_id is None:
            return
        await asyncio.to_thread(
            self._catalog.register_session,
            session_id,
            group_id,
            task=None,
            group_size=None,
            metadata={},
            key_hash=None,
        )


def control_key(configured: str | None, root: Path) -> str:
    """The configured control key, else the one in the store's key file, created at the first start (mode 0600)."""
    if configured is not None:
        return configured
    path = root / "control.key"
    root.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"control.key.{os.getpid()}")
    if not path.exists():
        aside.touch(mode=0o600)
        aside.write_text(new_id("weir-control") + "\n")
        try:
            os.link(aside, path)  # of several proxies that start together, the first one wins
        except FileExistsError:
            pass
        finally:
            aside.unlink()
    return path.read_text().strip()
