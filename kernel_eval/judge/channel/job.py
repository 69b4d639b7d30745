"""What a server gives a judge to do, and what the judge makes of it. Records only; no torch."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from weir.kernel_eval.ipc.trace import Trace
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.sandbox.levels import SandboxLevel


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Server to judge: one candidate. Its descriptor is a lease on a worker."""

    reference_src: str
    candidate_src: str
    secret: bytes  # what seeds are derived from
    num_correct_trials: int
    num_perf_trials: int  # further trials, checked like the others
    limits: Limits
    relaxed_rules: tuple[str, ...] = ()
    backend: Literal["triton", "cuda", "hip"] = "triton"
    checks_task: bool = False  # the reference alone; there is no candidate
    reward_compiled: bool = False  # of CUDA C++ that nothing here can run
    preferred_gpu: int | None = None
    baseline_us: float | None = None  # how long the reference takes on this GPU, where that is known


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """Judge to server: how far the candidate came, and why not further."""

    stage: Stage
    fault: Fault | None = None
    message: str = ""
    trials: int = 0  # answered and compared
    seconds: float = 0.0
    speedup: float | None = None  # measured on a device, and confirmed
    timed: bool = False  # on a device; without a speedup, what was measured does not count
    details: dict[str, Any] = {}


class Judged(msgspec.Struct, frozen=True):
    """A judgement, and what contained the candidate."""

    judgement: Judgement
    sandbox: SandboxLevel
    mode: Literal["interpreter", "gpu"] = "interpreter"


class Found(Exception):
    """Raised within a judge where an evaluation ends with a fault."""

    def __init__(self, stage: Stage, fault: Fault, message: str, **details: Any) -> None:
        super().__init__(message)
        self.stage = stage
        self.fault = fault
        self.message = message
        self.details = details


class Lacks(Found):
    """The candidate's process says that Triton's interpreter lacks something. A claim (`lacking.py`)."""

    def __init__(self, found: Found, trace: Trace) -> None:
        super().__init__(found.stage, found.fault, found.message, **found.details)
        self.trace = trace  # of the call, up to the launch that failed


def broken(rule: str, seen: str) -> Found:
    """A rule was broken."""
    return Found(Stage.LOADED, Fault.REWARD_HACK, f"{rule}: {seen}", rule=rule)
