"""What transports alone give from one process to another: nothing is checked, hashed, asked for or switched.

Each moves the bytes of a model bucket by bucket into memory that was touched before. Shared memory: one process fills
the two buckets by turns, the other copies out of them. Sockets: a group of the two, as engines on other machines are
in.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import multiprocessing

from weir.engine.transfer.bucket import shared_bytes
from weir.engine.transfer.group import WeightGroup, join_store, serve_store

LIMIT_S = 300.0
NUM_WARM = 2  # buckets before those that are timed


def memory_rate(num_bytes: int, bucket_bytes: int) -> float:
    """10^9 bytes a second through shared memory, in whole buckets."""
    source = torch.ones(bucket_bytes, dtype=torch.uint8)
    buckets = [shared_bytes(bucket_bytes) for _ in range(2)]
    with _other(_copy_out, buckets) as other:
        began_s = 0.0
        num_timed = max(1, num_bytes // bucket_bytes)
        for number in range(NUM_WARM + num_timed):
            if number == NUM_WARM:
                other.recv()
                began_s = time.perf_counter()
            buckets[number % 2].copy_(source)
            if number not in (0, NUM_WARM):
                other.recv()  # it has copied the bucket before
            other.send(number % 2)
        other.recv()
        return num_timed * bucket_bytes / (time.perf_counter() - began_s) / 1e9


def sockets_rate(num_bytes: int, bucket_bytes: int) -> float:
    """10^9 bytes a second over the sockets of a group, in whole buckets."""
    store = serve_store("127.0.0.1", 2, LIMIT_S)
    source = torch.ones(bucket_bytes, dtype=torch.uint8)
    with _other(_receive, store.port, bucket_bytes) as other:
        group = WeightGroup(store, "w", rank=0, world_size=2, backend="gloo", timeout_s=LIMIT_S, relayed=True)
        began_s = 0.0
        num_timed = max(1, num_bytes // bucket_bytes)
        for number in range(NUM_WARM + num_timed):
            if number == NUM_WARM:
                began_s = time.perf_counter()
            other.send(True)
            group.broadcast(source)
            other.recv()
        seconds = time.perf_counter() - began_s
        group.leave()
    return num_timed * bucket_bytes / seconds / 1e9


@contextmanager
def _other(act: Any, *arguments: Any) -> Iterator[Connection]:
    """A process that acts until it receives None; this end of its pipe."""
    context: Any = multiprocessing.get_context("spawn")
    own, its = context.Pipe()
    process = context.Process(target=act, args=(its, *arguments), daemon=True)
    process.start()
    try:
        yield own
        own.send(None)
    finally:
        own.close()
        process.join()


def _copy_out(pipe: Connection, buckets: list[torch.Tensor]) -> None:
    torch.set_num_threads(1)
    target = torch.ones_like(buckets[0])
    while (number := pipe.recv()) is not None:
        target.copy_(buckets[number])
        pipe.send(True)


def _receive(pipe: Connection, port: int, bucket_bytes: int) -> None:
    torch.set_num_threads(1)
    store = join_store("127.0.0.1", port, 2, LIMIT_S)
    group = WeightGroup(store, "w", rank=1, world_size=2, backend="gloo", timeout_s=LIMIT_S, relayed=True)
    while pipe.recv() is not None:
        group.broadcast(group.room(bucket_bytes))
        pipe.send(True)
    group.leave()
