"""The engines that `weir train` starts itself: those of members that name no URL.

Invariant: an engine that is started anew has a new address, and is a member that was lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from weir.cluster.config import ClusterMember
from weir.scripts.live.processes.processes import Engine, Processes, ProcessFailed

LOOK_S = 0.5


class Listener(Protocol):
    """Who hears where engines are."""

    async def moved(self, member: str, url: str) -> None:
        """The engine of a member is at this address from now on."""


class PlacedEngines:
    """The engines of members without a URL, by name."""

    def __init__(self, processes: Processes, members: dict[str, ClusterMember], say: Callable[[str], None]) -> None:
        self._processes, self._members, self._say = processes, members, say
        self._engines: dict[str, Engine] = {}
        self._said: dict[str, str] = {}

    @property
    def names(self) -> set[str]:
        """The members whose engines are started here."""
        return set(self._engines)

    def kill(self, name: str) -> None:
        """Kill the engine of a member, if it was started here, so that it is started anew."""
        if name in self._engines:
            self._say(f"the engine of member {name} runs and does not answer: it is killed, and started again")
            self._engines[name].kill()

    async def watch(self, listener: Listener) -> None:
        """Start them, and tell where they are, until cancelled."""
        while True:
            new = [name for name, member in self._members.items() if member.is_placed and name not in self._engines]
            for name in new:
                self._take_in(name)
            await asyncio.gather(*(self._look_at(name, listener) for name in self._engines))
            await asyncio.sleep(LOOK_S)

    async def close(self) -> None:
        """End them."""
        await asyncio.gather(*(engine.close() for engine in self._engines.values()))

    def _take_in(self, name: str) -> None:
        try:
            self._engines[name] = self._processes.engine(name)
        except ProcessFailed as error:
            self._say_once(name, str(error))

    def _say_once(self, name: str, why: str) -> None:
        if self._said.get(name) != why:
            self._said[name] = why
            self._say(f"member {name} has no engine: {why}")

    async def _look_at(self, name: str, listener: Listener) -> None:
        try:
            url = await self._engines[name].url()
        except ProcessFailed as error:
            self._say_once(name, str(error))
            return
        if url is not None and url != self._members[name].url:
            await listener.moved(name, url)
