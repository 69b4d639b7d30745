"""The records that pass between a server and a judge: a job to do, and the judgement on it. No torch."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from weir.kernel_eval.limits import Limits
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.sandbox.levels import SandboxLevel


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Server to judge: one candidate. The descriptors of `Leases` travel with it."""

    reference_src: str
    candidate_src: str
    secret: bytes  # from which all seeds are derived
    num_correct_trials: int
    num_perf_trials: int  # additional trials, checked like the others
    limits: Limits
    relaxed_rules: tuple[str, ...] = ()
    backend: Literal["triton", "cuda", "hip"] = "triton"
    checks_task: bool = False  # judge the reference alone; there is no candidate
    torch_operators: tuple[str, ...] | None = ()  # that may compute beside kernels; None: all
    reward_compiled: bool = False  # reward CUDA C++ that compiles and cannot be run on this machine
    recompiles: bool = False  # without a GPU: compile the kernels again, from extracted source alone
    cross_checks: bool = False  # on a GPU: have a CPU play the IR of the record, too
    preferred_gpu: int | None = None
    baseline_us: float | None = None  # the reference's time on this GPU, if it has been measured

    @property
    def permitted(self) -> frozenset[str] | None:
        """`torch_operators` as a set."""
        return None if self.torch_operators is None else frozenset(self.torch_operators)


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """Judge to server: the stage that the candidate reached, and the fault that stopped it."""

    stage: Stage
    fault: Fault | None = None
    message: str = ""
    trials: int = 0  # answered and compared
    seconds: float = 0.0
    speedup: float | None = None  # measured on a device, and confirmed
    timed: bool = False  # measured on a device; without a speedup, the measurement does not count
    kernel_share: float = 1.0  # the part of the work that kernels did, where torch may compute beside them
    details: dict[str, Any] = {}


class Judged(msgspec.Struct, frozen=True):
    """A judgement, and the sandbox and mode that it was made in."""

    judgement: Judgement
    sandbox: SandboxLevel
    mode: Literal["interpreter", "gpu"] = "interpreter"
