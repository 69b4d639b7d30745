"""Ranks that send a version to engines themselves: each gathers some whole tensors from all ranks, and broadcasts them.

Every tensor has one owner, which meets the engines in a process group of its own, as rank 0 of it; that is all that
SGLang knows. The buckets of all owners have one order, in which engines ask for them. Invariants: the bytes are those
of the published files; a rank holds two buckets at most, and its own rows again where they are not the parameters
themselves (averaged, merged, or parts of columns); a rank does not fail because an engine does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from weir.engine.transfer.bucket import FlattenedTensorMetadata, laid_out
from weir.engine.transfer.group import WeightGroup, join_store
from weir.trainer.errors import TrainerError
from weir.trainer.learner.distributed import Ranks
from weir.trainer.learner.rank_requests import LEARNER
from weir.trainer.model.owned_tensors import Listed, Meeting, OwnedBucket, Sent
from weir.trainer.model.shared_files import Published

OFFERED = "offered"
REACH_S = 15.0  # for the publisher's store, which is there already

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Agree on who sends what; returns the buckets in the order in which they will be broadcast."""

    bucket_bytes: int

    def run(self, ranks: Ranks, held: dict[str, Any]) -> list[OwnedBucket]:
        """As `Request.run`. Raises `TrainerError` where rows of a tensor are on no rank."""
        del ranks  # those of Megatron are copies of the model
        offered = held[OFFERED] = Offered(held[LEARNER].published(), self.bucket_bytes)
        return offered.buckets


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Broadcast what was offered."""

    meeting: Meeting

    def run(self, ranks: Ranks, held: dict[str, Any]) -> Sent:
        """As `Request.run`."""
        del ranks
        offered: Offered = held.pop(OFFERED)
        return offered.send(self.meeting)


class Offered:
    """This rank's rows of a version, and which rank sends which tensor."""

    def __init__(self, published: Published, bucket_bytes: int) -> None:
        """Divide the tensors among the ranks that hold rows of them; a collective operation."""
        self.rank = dist.get_rank()
        self._dtypes, self._shapes = published.dtypes(), published.shapes
        self._own: dict[str, list[tuple[int, torch.Tensor]]] = {}
        for name, rows, start in published.rows:
            kept = rows.detach() if published.stays else rows.detach().to(self._dtypes[name]).cpu()
            self._own.setdefault(name, []).append((start, kept))
        own = {name: [(start, _num_rows(rows)) for start, rows in parts] for name, parts in self._own.items()}
        self._places = _of_all(own)  # by rank: first row and number of rows of its parts
        self._check_whole()
        self.buckets = list(self._in_turn(self._owned(), bucket_bytes))
        self._device = torch.device("cpu")
        if dist.get_backend() == "nccl":
            self._device = torch.device("cuda", torch.cuda.current_device())

    def _check_whole(self) -> None:
        for name, shape in self._shapes.items():
            there = sum(rows for places in self._places for _, rows in places.get(name, ()))
            if there != (shape[0] if shape else 1):
                raise TrainerError(f"the ranks hold {there} rows of {name}, whose shape is {list(shape)}")

    def _size(self, name: str) -> int:
        return math.prod(self._shapes[name]) * self._dtypes[name].itemsize

    def _owned(self) -> list[list[str]]:
        """The tensors of each rank: each goes to the rank with the least among those that hold most of its rows."""
        held = [0] * len(self._places)
        owned: list[list[str]] = [[] for _ in self._places]
        for name in sorted(self._shapes, key=lambda name: (-self._size(name), name)):
            rows = [sum(count for _, count in places.get(name, ())) for places in self._places]
            owner = min((held[rank], rank) for rank, count in enumerate(rows) if 2 * count > max(rows))[1]
            owned[owner].append(name)
            held[owner] += self._size(name)
        return owned

    def _in_turn(self, owned: Sequence[list[str]], bucket_bytes: int) -> Iterator[OwnedBucket]:
        """Buckets of one owner after the other, so that one gathers while another one sends."""
        of_rank = [list(self._filled(rank, names, bucket_bytes)) for rank, names in enumerate(owned)]
        for turn in range(max(map(len, of_rank), default=0)):
            yield from (buckets[turn] for buckets in of_rank if turn < len(buckets))

    def _filled(self, owner: int, names: Sequence[str], bucket_bytes: int) -> Iterator[OwnedBucket]:
        """Buckets of at most so many bytes, or of one tensor; wide types first, so that all align."""
        held: list[Listed] = []
        size = 0
        for name in sorted(names, key=lambda name: (-self._dtypes[name].itemsize, name)):
            if held and size + self._size(name) > bucket_bytes:
                yield OwnedBucket(owner=owner, tensors=tuple(held))
                held, size = [], 0
            held.append((name, self._dtypes[name], self._shapes[name]))
            size += self._size(name)
        if held:
            yield OwnedBucket(owner=owner, tensors=tuple(held))

    def send(self, meeting: Meeting) -> Sent:
        """Broadcast this rank's buckets, and give the others their rows of theirs; all ranks call it."""
        own = _OwnGroup(meeting, self.rank) if any(bucket.owner == self.rank for bucket in self.buckets) else None
        if not any(_of_all(None if own is None else own.failure)):
            self._send_all(own)
        num_bytes, failure = (0, None) if own is None else own.left()
        every = _of_all((num_bytes, failure))
        failures = [why for _, why in every if why is not None]
        return Sent(num_bytes=sum(count for count, _ in every), failure=failures[0] if failures else None)

    def _send_all(self, own: _OwnGroup | None) -> None:
        """Gather one bucket ahead of the broadcasts."""
        if own is not None:
            own.join()
        with ThreadPoolExecutor(max_workers=1, initializer=_compute_on, initargs=(self._device,)) as gatherer:
            ahead: Future[torch.Tensor | None] | None = None
            for bucket in (*self.buckets, None):
                coming = None if bucket is None else gatherer.submit(self._gathered, bucket)
                flat = None if ahead is None else ahead.result()
                if flat is not None and own is not None:
                    own.broadcast(flat)
                ahead = coming

    def _gathered(self, bucket: OwnedBucket) -> torch.Tensor | None:
        """The bytes of a bucket on its owner, (bytes,) uint8; on the others None, once they have given their rows."""
        operations: list[Any] = []
        entries = laid_out(bucket.tensors)
        flat = None
        if bucket.owner == self.rank:
            flat = torch.empty(entries[-1].end_idx, dtype=torch.uint8, device=self._device)
        given: list[torch.Tensor] = []  # stays until it was taken
        for entry in entries:
            row_bytes = math.prod(entry.shape[1:]) * entry.dtype.itemsize
            if flat is not None:
                operations += self._taken(flat, entry, row_bytes)
            for start, rows in self._own.get(entry.name, ()):
                content = rows.to(self._device, entry.dtype).contiguous().flatten().view(torch.uint8)
                if flat is None:
                    given.append(content)
                    operations += [dist.P2POp(dist.isend, content, bucket.owner)] if len(content) else []
                else:
                    at = entry.start_idx + start * row_bytes
                    flat[at : at + len(content)].copy_(content)
        for work in dist.batch_isend_irecv(operations) if operations else ():
            work.wait()
        return flat

    def _taken(self, flat: torch.Tensor, entry: FlattenedTensorMetadata, row_bytes: int) -> list[Any]:
        """What fills the other ranks' rows of a tensor, in the order in which each of them gives its own."""
        found = []
        for rank, places in enumerate(self._places):
            for start, count in places.get(entry.name, ()) if rank != self.rank else ():
                at = entry.start_idx + start * row_bytes
                if count * row_bytes:
                    found.append(dist.P2POp(dist.irecv, flat[at : at + count * row_bytes], rank))
        return found


class _OwnGroup:
    """The process group of one owner and the engines. A failure is kept, and nothing more is sent."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        """Reach the publisher, which the engines are not needed for."""
        self.failure: str | None = None
        self._meeting = meeting
        self._name = f"{meeting.name}-{rank}"
        self._group: WeightGroup | None = None
        try:
            self._store = join_store(meeting.address, meeting.port, meeting.world_size, min(REACH_S, meeting.timeout_s))
            self._store.set_timeout(timedelta(seconds=meeting.timeout_s))
        except RuntimeError as error:
            self.failure = f"rank {rank} does not reach the publisher: {error}"

    def join(self) -> None:
        """Returns once the engines have joined, or the publisher has given up."""
        meeting = self._meeting
        try:
            self._group = WeightGroup(
                self._store,
                self._name,
                rank=0,
                world_size=meeting.world_size,
                backend=meeting.backend,
                timeout_s=meeting.timeout_s,
                relayed=meeting.relayed,
            )
        except RuntimeError as error:
            self.failure = str(error)

    def broadcast(self, flat: torch.Tensor) -> None:
        """Send a bucket, unless the publisher has given up, which ends the store."""
        if self._group is None or self.failure is not None:
            return
        try:
            self._store.num_keys()
            self._group.broadcast(flat.to(self._group.device))
        except RuntimeError as error:
            self.failure = str(error)

    def left(self) -> tuple[int, str | None]:
        """The bytes over the group's sockets, and what went wrong."""
        if self._group is None:
            return 0, self.failure
        num_bytes = self._group.sent_bytes()
        self._group.leave()
        return num_bytes, self.failure


def _of_all(value: ValueT) -> list[ValueT]:
    """The values of all ranks, by rank; a collective operation."""
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, value)
    return every


def _compute_on(device: torch.device) -> None:
    """A thread begins with the first GPU."""
    if device.type == "cuda":
        torch.cuda.set_device(device)


def _num_rows(rows: torch.Tensor) -> int:
    return len(rows) if rows.dim() else 1
