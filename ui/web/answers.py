"""Pages that were made from the newest view of the store, kept until something changes.

All viewers of a page fetch it in the moment in which they are told of a change: it is made once, and sent to each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass

from cachetools import LRUCache
from starlette.responses import Response

KEPT_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class _Made:
    """An answer as it was made; what is sent is a copy, since middleware changes the headers of what it sends."""

    status: int
    media_type: str
    body: bytes

    def response(self) -> Response:
        response = Response(self.body, self.status)
        response.headers["content-type"] = self.media_type
        return response


class Answers:
    """The answers of one state of what is shown, by their address."""

    def __init__(self) -> None:
        self._state: Hashable = None
        self._made: LRUCache[str, _Made] = LRUCache(KEPT_BYTES, getsizeof=lambda made: len(made.body))
        self._under_way: dict[str, asyncio.Task[_Made]] = {}

    async def of(self, state: Hashable, address: str, make: Callable[[], Awaitable[Response]]) -> Response:
        """What `make` answers: from the first who asks for the address in this state. What it raises is not kept."""
        if state != self._state:
            self._state, self._under_way = state, {}
            self._made.clear()
        if (made := self._made.get(address)) is None:
            if (task := self._under_way.get(address)) is None:
                task = self._under_way[address] = asyncio.create_task(self._make(self._under_way, address, make))
            made = await asyncio.shield(task)  # one who leaves does not end it for the others
        return made.response()

    async def _make(
        self, under_way: dict[str, asyncio.Task[_Made]], address: str, make: Callable[[], Awaitable[Response]]
    ) -> _Made:
        """Make an answer; `under_way` is of the state in which it was asked for."""
        try:
            response = await make()
        finally:
            del under_way[address]
        made = _Made(response.status_code, response.headers["content-type"], bytes(response.body))
        if under_way is self._under_way and len(made.body) <= KEPT_BYTES:
            self._made[address] = made
        return made
