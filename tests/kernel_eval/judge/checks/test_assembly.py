"""The assembler of a kernel may be started before its report is asked for."""

from __future__ import annotations

import contextlib
import socket

import pytest

from weir.kernel_eval.config import KernelEvalConfig
from weir.kernel_eval.ipc.messages import BuiltKernel, LaunchForm
from weir.kernel_eval.judge.channel.faults import FaultDetected
from weir.kernel_eval.judge.checks.assembly import describe, start_assembler
from weir.kernel_eval.protocol import Fault

LIMITS = KernelEvalConfig().limits
PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry nothing() { ret; }
"""


def built(assembly: str) -> BuiltKernel:
    form = LaunchForm(
        entry="nothing",
        types=(),
        num_warps=4,
        num_ctas=1,
        shared_bytes=0,
        scratch_bytes=0,
        scratch_align=1,
        cooperative=False,
        serial=False,
        maps=(),
    )
    return BuiltKernel(0, "nothing:1", "", assembly, 0, 4, 1, form)


def test_an_assembler_that_was_started_before_gives_the_same_report(programs: socket.socket) -> None:
    alone = describe(programs, LIMITS, built(PTX))
    with contextlib.closing(start_assembler(programs, LIMITS, built(PTX))) as started:
        assert describe(programs, LIMITS, built(PTX), started) == alone
    assert alone["kernel"] == "nothing:1"


def test_an_assembler_whose_report_nobody_asks_for_makes_room_for_another(programs: socket.socket) -> None:
    start_assembler(programs, LIMITS, built(PTX)).close()
    assert describe(programs, LIMITS, built(PTX))["registers"] > 0


def test_what_an_assembler_refuses_is_told_by_the_one_that_was_started_before(programs: socket.socket) -> None:
    refused = built("no assembly at all")
    with contextlib.closing(start_assembler(programs, LIMITS, refused)) as started:
        with pytest.raises(FaultDetected, match=r"Missing \.version") as raised:
            describe(programs, LIMITS, refused, started)
        assert raised.value.fault is Fault.TRITON_COMPILE_ERROR
    assert describe(programs, LIMITS, built(PTX))["kernel"] == "nothing:1"
