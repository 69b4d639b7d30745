"""Confirms or refutes a candidate's claim that Triton's interpreter lacks a feature.

A candidate can raise the exceptions that the interpreter raises, and its worker can send any message. The claim is
believed only if its kernels, extracted from the checked source, compile for the target, and if their launches then
fail in the same way in a process that holds nothing else of the candidate. Otherwise the failure is the candidate's.
"""

from __future__ import annotations

import ast
from contextlib import closing

from weir.kernel_eval.ipc.forkserver import Leases
from weir.kernel_eval.ipc.job import Job
from weir.kernel_eval.ipc.messages import InterpreterLacks, Replay, Replayed
from weir.kernel_eval.ipc.tensor_arena import Arena, tensors_among
from weir.kernel_eval.judge.channel.faults import FaultDetected, UnsupportedClaim
from weir.kernel_eval.judge.channel.worker_channel import WorkerChannel
from weir.kernel_eval.judge.checks import proof
from weir.kernel_eval.judge.checks.target_build import TargetBuild
from weir.kernel_eval.judge.checks.trials import Trials
from weir.kernel_eval.judge.source import provenance
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.tasks.input_variants import PLAIN
from weir.kernel_eval.tasks.seeds import derive_seed


def confirm(job: Job, tree: ast.Module, trials: Trials, claim: UnsupportedClaim, leases: Leases) -> None:
    """Raises `FaultDetected` if the claim holds, or if the kernels do not compile; returns if nothing confirms it."""
    kernels = proof.kernels_of(tree, claim.trace)
    with closing(TargetBuild(leases, job.limits, trials.deadline, kernels, claim.trace)) as build:
        build.finish()
    missing_feature = _replay(job, trials, claim, kernels, leases)
    if missing_feature is not None:
        fault = Fault.NOT_RUN if job.reward_compiled else Fault.UNSUPPORTED
        message = f"it compiles for {job.limits.target}; the interpreter cannot run it: {missing_feature}"
        raise FaultDetected(Stage.LOADED, fault, message, phase="call", correctness="unknown")


def _replay(job: Job, trials: Trials, claim: UnsupportedClaim, kernels: str, leases: Leases) -> str | None:
    """The feature that the interpreter lacks, according to a process without the candidate; None if it lacks none."""
    inputs, _, _ = trials.reference.question(trials.model, derive_seed(job.secret, "proof"), PLAIN)
    arena = Arena([tensors_among(inputs), trials.state], [], job.limits.guard_bytes)
    worker = WorkerChannel(leases.worker, job.limits, trials.deadline)
    request = Replay(kernels, provenance.needed(claim.trace, frozenset(job.relaxed_rules)), arena.spec)
    try:
        worker.request(request, Replayed, "replay", job.limits.call_timeout_s, arena.fd)
    except FaultDetected as error:
        is_lack = error.details.get("exception") == InterpreterLacks.__name__
        return error.message.partition(": ")[2] if is_lack else None
    finally:
        worker.end()
        worker.close()
        arena.close()
    return None
