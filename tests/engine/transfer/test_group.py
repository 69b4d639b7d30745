"""A relayed group in real processes: every member gets the same bytes, and rank 0 sends each at most twice."""

from __future__ import annotations

import pytest
import torch
from support_processes import PROCESSES
from support_weight_group import LIMIT_S, NUM_BYTES, digest_of, member

from weir.engine.transfer.group import WeightGroup, serve_store


@pytest.mark.parametrize("num_members", [1, 6])
def test_every_member_gets_all_and_the_first_sends_each_byte_at_most_twice(num_members: int) -> None:
    world_size = num_members + 1
    store, got = serve_store("127.0.0.1", world_size, LIMIT_S), PROCESSES.Queue()
    members = [
        PROCESSES.Process(target=member, args=(store.port, rank, world_size, got)) for rank in range(1, world_size)
    ]
    for process in members:
        process.start()
    group = WeightGroup(store, "w", rank=0, world_size=world_size, backend="gloo", timeout_s=LIMIT_S, relayed=True)
    flat = torch.randint(0, 256, (NUM_BYTES,), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    group.broadcast(flat)
    assert [got.get(timeout=LIMIT_S) for _ in members] == [digest_of(flat)] * num_members
    copies = min(num_members, 2)
    assert copies * NUM_BYTES <= group.sent_bytes() < 1.1 * copies * NUM_BYTES
    group.broadcast(torch.zeros(1, dtype=torch.uint8))
    group.leave()
    for process in members:
        process.join()
        assert process.exitcode == 0
