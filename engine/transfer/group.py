"""The process group that weights are broadcast in: rank 0 is the trainer, the other ranks are engines.

It is made as SGLang makes its own, so that both can be members of one group: a store at the trainer's address, under
the group's name, and beside torch's default group. Every operation ends within the group's time limit.

A broadcast of gloo has rank 0 send everything log2(members) times. In a group of `relayed` members each passes on what
it gets to two others, piece by piece, so that the trainer sends each byte at most twice, however many engines there
are. SGLang knows broadcasts only.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch import distributed
from torch._C._distributed_c10d import TCPStore
from torch.distributed import distributed_c10d as c10d

from weir.engine.transfer.sockets import sent_bytes, sockets

PIECE_BYTES = 4 << 20  # passed on while the next one comes


class WeightGroup:
    """One member of a group. Joining, sending and receiving block; a lost member makes them raise RuntimeError."""

    def __init__(
        self,
        store: TCPStore,
        name: str,
        *,
        rank: int,
        world_size: int,
        backend: str,
        timeout_s: float,
        relayed: bool = False,
    ) -> None:
        """Join the group `name`; returns once all members have joined. Raises RuntimeError."""
        limit = timedelta(seconds=timeout_s)
        self._others = sockets()
        self._store = store  # rank 0 serves it to the others
        group, _ = c10d._new_process_group_helper(
            world_size,
            rank,
            [],
            c10d.Backend(backend),
            c10d.PrefixStore(name, store),
            group_name=c10d.GroupName(name),
            timeout=limit,
        )
        self._group: Any = group
        c10d._world.pg_group_ranks[group] = {member: member for member in range(world_size)}
        self.device = torch.device("cuda" if backend == "nccl" else "cpu")
        self._from = (rank - 1) // 2 if rank else None
        self._to = [member for member in (2 * rank + 1, 2 * rank + 2) if member < world_size]
        self._relayed = relayed
        self._room = torch.empty(0, dtype=torch.uint8)

    def room(self, count: int) -> torch.Tensor:
        """Memory for `count` bytes to receive into, (count,) uint8; it is the same until more is asked for."""
        if len(self._room) < count:
            self._room = torch.empty(count, dtype=torch.uint8, device=self.device)
        return self._room[:count]

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Send `tensor` from rank 0 to all others, in place; a relayed one is flat bytes. Raises RuntimeError."""
        if self._relayed:
            self._pass_on(tensor)
        else:
            distributed.broadcast(tensor, src=0, group=self._group)

    def sent_bytes(self) -> int:
        """What this process has sent over sockets that were opened since this member joined, the group's among them."""
        return sent_bytes(sockets() - self._others)

    def _pass_on(self, flat: torch.Tensor) -> None:
        pieces = torch.split(flat, PIECE_BYTES)
        receiving, sending = [], []
        if self._from is not None:  # all at once: a sender would wait for each that is not asked for yet
            receiving = [self._group.recv([piece], self._from, number) for number, piece in enumerate(pieces)]
        for number, piece in enumerate(pieces):
            if receiving:
                receiving[number].wait()
            sending += [self._group.send([piece], member, number) for member in self._to]
        for work in sending:
            work.wait()

    def leave(self) -> None:
        """End this member's connections, which makes operations of the others fail. May be called twice."""
        if self._group is not None:
            group, self._group = self._group, None
            distributed.destroy_process_group(group)


def serve_store(address: str, world_size: int, timeout_s: float) -> TCPStore:
    """The store of a new group, served at `address` on a free port, which is its `port`."""
    limit = timedelta(seconds=timeout_s)
    return TCPStore(address, 0, world_size, is_master=True, timeout=limit, wait_for_workers=False)


def join_store(address: str, port: int, world_size: int, timeout_s: float) -> TCPStore:
    """The store that the trainer serves. Raises RuntimeError where nobody serves it."""
    limit = timedelta(seconds=timeout_s)
    return TCPStore(address, port, world_size, is_master=False, timeout=limit)
