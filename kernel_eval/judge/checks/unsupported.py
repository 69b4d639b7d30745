"""Is it the interpreter's lack, or the candidate's word for it? A judge finds out before it calls a kernel unsupported.

A candidate can raise whatever Triton's interpreter raises, and send whatever its worker sends. What it says is believed
only if its kernels, taken out of the checked source, compile for the target, and if its launches then fail in the same
way in a process that holds nothing else of it. Everything else is its own failure.
"""

from __future__ import annotations

import ast
from contextlib import closing

from weir.kernel_eval.ipc.forkserver import Leases
from weir.kernel_eval.ipc.messages import InterpreterLacks, Replay, Replayed
from weir.kernel_eval.ipc.tensor_arena import Arena, tensors_among
from weir.kernel_eval.judge.channel.job import Found, Job, Lacks
from weir.kernel_eval.judge.channel.worker_channel import WorkerChannel
from weir.kernel_eval.judge.checks import proof
from weir.kernel_eval.judge.checks.target_build import Building
from weir.kernel_eval.judge.checks.trials import Trials
from weir.kernel_eval.judge.source import provenance
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.tasks.input_variants import PLAIN
from weir.kernel_eval.tasks.seeds import derive_seed


def confirm(job: Job, tree: ast.Module, trials: Trials, claim: Lacks, leases: Leases) -> None:
    """Raises `Found`, with a fault of ours or the compiler's word on the kernels; returns if nothing confirms it."""
    kernels = proof.kernels_of(tree, claim.trace)
    with closing(Building(leases, job.limits, trials.patience, kernels, claim.trace)) as building:
        building.finish()
    lacking = _replay(job, trials, claim, kernels, leases)
    if lacking is not None:
        fault = Fault.NOT_RUN if job.reward_compiled else Fault.UNSUPPORTED
        message = f"it compiles for {job.limits.target}; the interpreter cannot run it: {lacking}"
        raise Found(Stage.LOADED, fault, message, phase="call", correctness="unknown")


def _replay(job: Job, trials: Trials, claim: Lacks, kernels: str, leases: Leases) -> str | None:
    """What the interpreter lacks, as a process without the candidate says."""
    inputs, _ = trials.reference.question(trials.model, derive_seed(job.secret, "proof"), PLAIN)
    arena = Arena([tensors_among(inputs), trials.state], [], job.limits.guard_bytes)
    worker = WorkerChannel(leases.worker, job.limits, trials.patience)
    question = Replay(kernels, provenance.needed(claim.trace, frozenset(job.relaxed_rules)), arena.spec)
    try:
        worker.ask(question, Replayed, "replay", job.limits.call_timeout_s, arena.fd)
    except Found as found:
        lacks = found.details.get("exception") == InterpreterLacks.__name__
        return found.message.partition(": ")[2] if lacks else None
    finally:
        worker.end()
        worker.close()
        arena.close()
    return None
