"""KernelBench's `KernelExecResult`, the reply of other evaluation servers: read by the client, written by this server.

Its fields are `compiled`, `correctness`, `metadata`, and where time was measured `runtime`, `runtime_stats`,
`ref_runtime`, `ref_runtime_stats` (ms) and `speedup`; -1 stands for a time that was not measured. Servers add
`raw_reward` at will. Invariant: a reply that does not say whether the candidate compiled is no verdict.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from weir.kernel_eval.protocol import EvalReply, Fault
from weir.kernel_eval.reward import Outcome, Stage, speedup

UNMEASURED = -1.0
_TRIALS = re.compile(r"\((\d+) / \d+\)")
# What KernelBench's metadata call a failure, in the order of the phases that they name.
_FAULTS = {
    "compilation_error": Fault.COMPILE_ERROR,
    "timeout": Fault.TIMEOUT,
    "cuda_error": Fault.LAUNCH_FAILURE,
    "runtime_error": Fault.RUNTIME_ERROR,
    "correctness_issue": Fault.OUTPUT_MISMATCH,
}


class KernelExecResult(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation as KernelBench reports it."""

    compiled: bool
    correctness: bool
    metadata: dict[str, Any] = {}
    runtime: float = UNMEASURED
    runtime_stats: dict[str, Any] = {}
    ref_runtime: float = UNMEASURED
    ref_runtime_stats: dict[str, Any] = {}
    speedup: float | None = None
    raw_reward: float | None = None


def decode_reply(body: bytes) -> EvalReply:
    """A reply in either form. Raises `msgspec.DecodeError`."""
    fields = msgspec.json.decode(body)
    if isinstance(fields, dict) and "correctness" in fields and "correct" not in fields:
        return reply_of(msgspec.convert(fields, KernelExecResult))
    return msgspec.convert(fields, EvalReply)


def reply_of(result: KernelExecResult) -> EvalReply:
    """The reply that a `KernelExecResult` stands for.

    Without a `raw_reward` it is 0, 0.1 (compiled) or 0.3 + min(max(speedup - 1, 0), 2) (correct). The speedup, where
    there is none, is `ref_runtime` over `runtime`.
    """
    fault = None if result.correctness else _fault(result)
    stage = Stage.CORRECT if result.correctness else Stage.LOADED if result.compiled else Stage.NOTHING
    measured = _speedup(result)
    trials = _TRIALS.search(str(result.metadata.get("correctness_trials", "")))
    earned = speedup(Outcome(stage, measured)) if result.raw_reward is None else result.raw_reward
    return EvalReply(
        compiled=result.compiled,
        correct=result.correctness,
        fault=fault,
        fault_message=None if fault is None else _message(result),
        raw_reward=earned,
        sandbox="unknown",
        mode="gpu",
        trials=int(trials[1]) if trials else 0,
        seconds=0.0,
        speedup=measured,
        details={"metadata": result.metadata, "runtime_stats": result.runtime_stats},
    )


def exec_fields(reply: EvalReply) -> dict[str, Any]:
    """The fields of a `KernelExecResult` that a reply of this server does not have under the same name."""
    timing = reply.details.get("timing", {})
    reference = timing.get("reference", {})
    metadata: dict[str, Any] = {"correctness_trials": f"({reply.trials} / {reply.trials})"} if reply.correct else {}
    if reply.fault is not None:
        named = {fault: name for name, fault in _FAULTS.items()}
        other = "runtime_error" if reply.compiled else "compilation_error"
        metadata = {named.get(reply.fault, other): reply.fault_message, "fault": reply.fault}
    return {
        "correctness": reply.correct,
        "metadata": metadata,
        "runtime": timing.get("mean_ms", UNMEASURED) if reply.speedup is not None else UNMEASURED,
        "runtime_stats": {name: value for name, value in timing.items() if isinstance(value, int | float)},
        "ref_runtime": reference.get("mean_ms", UNMEASURED) if reply.speedup is not None else UNMEASURED,
        "ref_runtime_stats": reference,
    }


def _fault(result: KernelExecResult) -> Fault:
    named = next((fault for name, fault in _FAULTS.items() if name in result.metadata), None)
    if named is not None:
        return named
    return Fault.OUTPUT_MISMATCH if result.compiled else Fault.COMPILE_ERROR


def _message(result: KernelExecResult) -> str:
    texts = [str(result.metadata[name]) for name in _FAULTS if name in result.metadata]
    return texts[0] if texts else "the server gave no reason"


def _speedup(result: KernelExecResult) -> float | None:
    if not result.correctness:
        return None
    if result.speedup is not None and result.speedup > 0:
        return result.speedup
    return result.ref_runtime / result.runtime if result.ref_runtime > 0 and result.runtime > 0 else None
