"""Has training ranks send a version to engines: each rank its own tensors, in a process group of its own.

This process asks the engines to join and to receive, in the order that the ranks agreed on; no weight passes through
it. Invariants: as in senders.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import httpx

from weir.engine.transfer.group import serve_store
from weir.store.catalog.catalog import Catalog
from weir.trainer.errors import TrainerError
from weir.trainer.http_json import Refused
from weir.trainer.model.owned_tensors import Meeting, OwnedBucket, Sent
from weir.trainer.publishing.attempts import Attempt
from weir.trainer.publishing.members import Member, address_towards
from weir.trainer.publishing.senders import send_to_all
from weir.trainer.publishing.weight_source import WeightSource

T = TypeVar("T")


class SendingRanks(Protocol):
    """Ranks that hold a version's weights. Their requests raise `TrainerError` when one of them dies."""

    @property
    def address(self) -> str | None:
        """Where ranks on other machines reach this one; None where all run here."""
        ...

    def offer(self, bucket_bytes: int) -> list[OwnedBucket]:
        """The buckets that the ranks will send, in their order."""
        ...

    def send(self, meeting: Meeting) -> Sent:
        """Send them to the engines of a meeting."""
        ...

    def kill(self) -> None:
        """End the ranks, and so a request that they do not answer."""
        ...


async def send_by_ranks(
    http: httpx.AsyncClient,
    members: Sequence[Member],
    source: WeightSource,
    version: int,
    timeout_s: float,
    ranks: SendingRanks,
    catalog: Catalog,
) -> tuple[dict[str, str], int]:
    """All tensors from the ranks that own them, and to engines that share memory by that.

    Returns failures, by URL, and how many ranks sent. Raises `TrainerError` where a rank dies, does not answer or
    cannot send, which is no engine's fault.
    """
    num_ranks = 0

    async def from_owners(far: Sequence[Member]) -> dict[str, str]:
        nonlocal num_ranks
        meeting = _Meeting(http, far, version, timeout_s, ranks, catalog)
        lost = await meeting.send(source.bucket_bytes)
        source.num_sent += meeting.sent_bytes
        num_ranks = 0 if lost else meeting.num_ranks
        return lost

    return await send_to_all(http, members, source, version, timeout_s, from_owners), num_ranks


class _Meeting(Attempt):
    """One group of engines for each rank that sends, for one attempt."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        members: Sequence[Member],
        version: int,
        timeout_s: float,
        ranks: SendingRanks,
        catalog: Catalog,
    ) -> None:
        super().__init__(http, members, version, timeout_s, catalog)
        self._ranks = ranks
        self.num_ranks = 0  # that send

    async def send(self, bucket_bytes: int) -> dict[str, str]:
        """Make the groups, send everything and end them; returns those that made it fail, by URL.

        Raises `TrainerError` where no engine did.
        """
        buckets = await self._answer(asyncio.to_thread(self._ranks.offer, bucket_bytes))
        names = {bucket.owner: f"{self.name}-{bucket.owner}" for bucket in buckets}
        self.num_ranks = len(names)
        try:
            backend, address = self.backend(), self._ranks.address or address_towards(list(self.members))
            store = await asyncio.to_thread(serve_store, address, self.world_size, self.timeout_s)
        except (Refused, RuntimeError, OSError) as error:
            raise TrainerError(str(error)) from error
        meeting = Meeting(
            name=self.name,
            address=address,
            port=store.port,
            world_size=self.world_size,
            backend=backend,
            relayed=self.is_relayed(backend),
            timeout_s=self.timeout_s,
        )
        await self.note(list(names.values()))
        sending = asyncio.ensure_future(asyncio.to_thread(self._ranks.send, meeting))
        failure: str | None = None
        try:
            for name in names.values():  # one after the other: SGLang joins one at a time
                await _all(sending, self.joins(name, address, meeting.port, backend))
            for number, bucket in enumerate(buckets):
                last = number == len(buckets) - 1
                await _all(sending, self.receives(names[bucket.owner], bucket.tensors, last))
            await self._answer(sending)  # ranks count what they sent before engines close their sockets
        except (Refused, TrainerError) as error:
            failure = str(error)
        del store  # ranks that wait for engines to join wait no longer, and the others begin no further broadcast
        # ends broadcasts to engines that have not asked for them
        gone = await self.leave(list(names.values()), has_failed=failure is not None)
        sent = await self._answer(sending)
        self.sent_bytes = sent.num_bytes
        failure = failure or sent.failure
        if failure is None:
            return {}
        if not gone and not self.errors:
            raise TrainerError(failure)
        return self.lost(gone, failure)

    async def _answer(self, asked: Awaitable[T]) -> T:
        """What the ranks answer; those that do not within the limit are ended. Raises `TrainerError`."""
        answer = asyncio.ensure_future(asked)
        await asyncio.wait([answer], timeout=self.timeout_s)
        if not answer.done():
            self._ranks.kill()
            with suppress(TrainerError):
                await answer
            raise TrainerError(f"they gave no answer within {self.timeout_s:g} s, and were killed")
        return await answer


async def _all(sending: asyncio.Future[Sent], asked: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Wait for engines' answers; the first error ends the waiting, and so do ranks that stop before.

    Raises `Refused`, and `TrainerError` when a rank dies.
    """
    answers = asyncio.gather(*asked)
    either: list[asyncio.Future[Any]] = [sending, answers]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if sending.done() and not answers.done() and (failure := sending.result().failure) is not None:
            raise Refused(failure)
        await answers
    finally:
        answers.cancel()
