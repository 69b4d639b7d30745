"""Sends the tensors of a version to engines: through shared memory, or by broadcast in a process group.

A group has no member that can open this process's shared memory: such an engine gets its tensors by it, at several
times the rate of sockets. On GPUs shared memory is that of the device, by CUDA IPC (device_buckets.py).

The requests are SGLang's. Invariants: an engine that fails is named with its reason, and the others get everything; no
sender waits longer than the time limit for one answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import httpx
import torch

from weir.engine.transfer.bucket import FlattenedTensorMetadata, packed
from weir.engine.transfer.group import WeightGroup, serve_store
from weir.store.catalog.catalog import Catalog
from weir.trainer.http_json import Refused, done, for_each
from weir.trainer.publishing.attempts import Attempt, settings_of
from weir.trainer.publishing.device_buckets import Places, in_memory, places_for
from weir.trainer.publishing.members import Member, address_towards
from weir.trainer.publishing.weight_source import WeightSource

T = TypeVar("T")


async def begin(http: httpx.AsyncClient, members: Sequence[Member], timeout_s: float) -> dict[str, str]:
    """Open an update in every engine; returns the reasons of failures, by URL."""

    async def open_one(url: str) -> None:
        body = {"selector": "all"}
        try:
            await done(http, f"{url}/begin_weight_update", body, timeout_s=timeout_s)
        except Refused as error:
            if "already open" not in str(error):
                raise
            await done(http, f"{url}/end_weight_update", {}, timeout_s=timeout_s)  # of a publisher that was killed
            await done(http, f"{url}/begin_weight_update", body, timeout_s=timeout_s)

    return await for_each([member.url for member in members], open_one)


async def send_by_memory(
    http: httpx.AsyncClient, members: Sequence[Member], source: WeightSource, version: int, timeout_s: float
) -> dict[str, str]:
    """All tensors to engines on this machine; every byte is written once for all of them. Returns failures, by URL."""
    places: dict[str, Places] = {member.url: in_memory for member in members}
    return await _send_buckets(http, members, places, source, version, timeout_s)


async def send_by_ipc(
    http: httpx.AsyncClient, members: Sequence[Member], source: WeightSource, version: int, timeout_s: float
) -> dict[str, str]:
    """As `send_by_memory`; an engine that computes on GPUs gets each bucket on these. Returns failures, by URL."""
    failed: dict[str, str] = {}
    places: dict[str, Places] = {}
    for member in members:
        try:
            places[member.url] = places_for(member)
        except Refused as error:
            failed[member.url] = str(error)
    left = [member for member in members if member.url in places]
    return failed | await _send_buckets(http, left, places, source, version, timeout_s)


async def _send_buckets(
    http: httpx.AsyncClient,
    members: Sequence[Member],
    places: Mapping[str, Places],
    source: WeightSource,
    version: int,
    timeout_s: float,
) -> dict[str, str]:
    failed: dict[str, str] = {}
    ranks = {member.url: member.num_ranks for member in members}

    async def send(flat: torch.Tensor, entries: Sequence[FlattenedTensorMetadata], last: bool) -> None:
        source.num_sent += len(flat)  # written once for all

        async def to_one(url: str) -> None:
            held = await asyncio.to_thread(places[url], flat, ranks[url])  # until the engine has answered
            buckets = await asyncio.to_thread(lambda: [packed(copy, entries) for copy in held])
            body = {"serialized_named_tensors": buckets} | settings_of(version, last)
            await done(http, f"{url}/update_weights_from_tensor", body, timeout_s=timeout_s)

        failed.update(await for_each([url for url in ranks if url not in failed], to_one))

    if members:
        await source.each_bucket(send)
    if not failed:
        source.keep_memory()
    return failed


async def send_in_group(
    http: httpx.AsyncClient,
    members: Sequence[Member],
    source: WeightSource,
    version: int,
    timeout_s: float,
    *,
    catalog: Catalog,
) -> dict[str, str]:
    """All tensors by broadcast, and then to engines that share memory by that. Returns failures, by URL."""

    async def by_broadcast(far: Sequence[Member]) -> dict[str, str]:
        group = _Group(http, far, version, timeout_s, catalog)
        lost = await group.send(source)
        source.num_sent += group.sent_bytes
        return lost

    return await send_to_all(http, members, source, version, timeout_s, by_broadcast)


async def send_to_all(
    http: httpx.AsyncClient,
    members: Sequence[Member],
    source: WeightSource,
    version: int,
    timeout_s: float,
    attempt: Callable[[Sequence[Member]], Awaitable[dict[str, str]]],
) -> dict[str, str]:
    """All tensors by attempts to the members that share no memory, then to the others by it; failures, by URL.

    An attempt returns the members that made it fail, by URL; then the others get all in another one.
    """
    failed: dict[str, str] = {}
    left = [member for member in members if not member.shares_memory]
    while left and (lost := await attempt(left)):
        failed |= lost
        left = [member for member in left if member.url not in failed]
        failed |= await begin(http, left, timeout_s)
        left = [member for member in left if member.url not in failed]
    near = [member for member in members if member.shares_memory]
    return failed | await send_by_memory(http, near, source, version, timeout_s)


class _Group(Attempt):
    """One process group of this process and some engines, for one attempt."""

    _own: WeightGroup | None = None

    async def send(self, source: WeightSource) -> dict[str, str]:
        """Make the group, send everything and end it; returns those that made it fail, by URL."""
        why = "the broadcast failed"
        try:
            await self._join()
            await source.each_bucket(self._send_bucket)
        except (Refused, RuntimeError, OSError) as error:
            why = f"the broadcast failed: {error}"
        else:
            await self._leave(has_failed=False)
            source.keep_memory()
            return {}
        return self.lost(await self._leave(has_failed=True), why)

    async def _join(self) -> None:
        backend, address = self.backend(), address_towards(list(self.members))
        await self.note([self.name])
        store = await asyncio.to_thread(serve_store, address, self.world_size, self.timeout_s)

        def join() -> WeightGroup:
            return WeightGroup(
                store,
                self.name,
                rank=0,
                world_size=self.world_size,
                backend=backend,
                timeout_s=self.timeout_s,
                relayed=self.is_relayed(backend),
            )

        self._own = await _while_asking(join, self.joins(self.name, address, store.port, backend))

    async def _send_bucket(self, flat: torch.Tensor, entries: Sequence[FlattenedTensorMetadata], last: bool) -> None:
        own = self._own
        assert own is not None
        tensors = [(entry.name, entry.dtype, entry.shape) for entry in entries]
        await _while_asking(lambda: own.broadcast(flat.to(own.device)), self.receives(self.name, tensors, last))

    async def _leave(self, *, has_failed: bool) -> dict[str, str]:
        """End the group in all members; returns those that do not answer, by URL."""
        self.sent_bytes = 0 if self._own is None else self._own.sent_bytes()  # before the others close the sockets
        gone = await self.leave([self.name], has_failed=has_failed)
        if self._own is not None:
            await asyncio.to_thread(self._own.leave)
        return gone


async def _while_asking(act: Callable[[], T], asked: Sequence[Coroutine[Any, Any, None]]) -> T:
    """Run what blocks while members are asked to take part; the first error of any of them ends the waiting."""
    blocking = asyncio.ensure_future(asyncio.to_thread(act))
    tasks = [blocking, *map(asyncio.ensure_future, asked)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    return await blocking
