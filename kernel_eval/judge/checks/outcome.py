"""The protocol of checks, one for each backend, and the outcome that they return."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from weir.kernel_eval.ipc.forkserver import Leases
from weir.kernel_eval.ipc.tensor_arena import UnsupportedValue
from weir.kernel_eval.judge.channel.faults import FaultDetected
from weir.kernel_eval.judge.channel.worker_channel import ZygoteLost
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.tasks.errors import InvalidReference, UnsupportedReference
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.timing.roofline import Speed

# Errors that end an evaluation with a fault. Any other error is a bug, and is reported by the process of the judge.
EvaluationError = FaultDetected | InvalidReference | UnsupportedValue | UnsupportedReference | ZygoteLost
EVALUATION_ERRORS = (FaultDetected, InvalidReference, UnsupportedValue, UnsupportedReference, ZygoteLost)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutcome:
    """The stage that a candidate reached, the fault that stopped it, and the measurements taken on the way."""

    stage: Stage = Stage.CORRECT
    fault: Fault | None = None
    message: str = ""
    trials: int = 0  # answered and compared
    speedup: float | None = None  # measured on a device, and confirmed
    timed: bool = False  # measured on a device; without a speedup, the measurement does not count
    kernel_share: float = 1.0  # the part of the work that kernels did, where torch may compute beside them
    details: dict[str, Any] = field(default_factory=dict)


class Check(Protocol):
    """Judges one candidate of one backend."""

    def run(self, leases: Leases, reference: Reference) -> CheckOutcome:
        """Judge the candidate against the task's reference. What it opens is closed when it returns or raises.

        Raises only errors that are bugs: every `EvaluationError` becomes an outcome with a fault.
        """


def outcome_of(
    error: EvaluationError | None,
    *,
    trials: int = 0,
    speed: Speed | None = None,
    details: dict[str, Any] | None = None,
) -> CheckOutcome:
    """The outcome of a check that ended with `error`, or of a correct candidate if there was none."""
    measured = dict(details or {})
    if speed is not None:
        measured["timing"] = speed.report()
    stage, fault, message = _fault_of(error)
    if isinstance(error, FaultDetected):
        measured |= error.details
    return CheckOutcome(
        stage=stage,
        fault=fault,
        message=message,
        trials=trials,
        speedup=None if speed is None else speed.speedup,
        timed=speed is not None,
        kernel_share=measured.get("kernel_share", 1.0),
        details=measured,
    )


def _fault_of(error: EvaluationError | None) -> tuple[Stage, Fault | None, str]:
    match error:
        case None:
            return Stage.CORRECT, None, ""
        case FaultDetected():
            return error.stage, error.fault, error.message
        case InvalidReference() | UnsupportedValue():
            return Stage.NOTHING, Fault.INVALID_REFERENCE, str(error)
        case UnsupportedReference():
            return Stage.NOTHING, Fault.UNSUPPORTED, str(error)
        case ZygoteLost():
            return Stage.NOTHING, Fault.SERVER_ERROR, "a process that forks workers is gone"
