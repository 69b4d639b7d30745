"""Limits of time on a processor that others use too."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

_NEIGHBOURS = 5
_SLOW = """
import torch, triton, time
import triton.language as tl

@triton.jit
def relu(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.maximum(tl.load(x + i, mask=i < n), 0.0), mask=i < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        WORK
        y = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""
_COMPUTES = "started = time.process_time()\n        while time.process_time() - started < 0.9: pass"


@pytest.fixture
def shared_processor() -> Iterator[None]:
    """This process, and what it starts, on one processor, with neighbours that compute for ever."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    neighbours = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(_NEIGHBOURS)]
    try:
        yield
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()
        os.sched_setaffinity(0, before)


@pytest.mark.usefixtures("shared_processor")
def test_what_neighbours_take_is_not_counted_and_what_a_candidate_sleeps_is(
    start_server: Callable[..., AbstractContextManager[Any]],
) -> None:
    with start_server(call_timeout_s=2.0, load_timeout_s=2.0, init_timeout_s=2.0) as server:
        slow = server.evaluate(_SLOW.replace("WORK", _COMPUTES))
        assert (slow["correct"], slow["fault_message"]) == (True, None)
        assert slow["seconds"] > 2.0
        asleep = server.evaluate(_SLOW.replace("WORK", "time.sleep(1000)"))
        assert (asleep["fault"], asleep["fault_message"]) == ("timeout", "no answer within 2 s in call")
