"""The proof that a candidate's kernels give the answer: its first call, run again without it, on inputs it never saw.

The trace of the first call was in the judge's hands before the inputs of the proof existed, and what it runs on are
the candidate's kernels as they stand in its source, in a process that has seen nothing else of it. So nothing that the
candidate's own process computed, cached, patched or reported can be part of the answer.

Not proven: that the candidate's process takes the same way in every call (where a call was timed, what is proven to be
right may not be what was fast), and that a kernel does more than it has to for a task whose answer is a copy.

A judge has a proof run (`proof.py`), on inputs that the candidate has never seen, and timed where a GPU is.
"""

from __future__ import annotations

import ast
import socket
from typing import NamedTuple

import torch

from weir.kernel_eval.ipc.messages import Replay, Replayed
from weir.kernel_eval.ipc.tensor_arena import Arena, tensors_among
from weir.kernel_eval.ipc.trace import Named, Trace
from weir.kernel_eval.judge.channel.job import Found, Job, broken
from weir.kernel_eval.judge.channel.worker_channel import Serve, WorkerChannel
from weir.kernel_eval.judge.checks.expected_answers import difference
from weir.kernel_eval.judge.checks.speedup import SpeedCheck
from weir.kernel_eval.judge.checks.trials import Trials
from weir.kernel_eval.judge.source import provenance, source_policy
from weir.kernel_eval.judge.source.kernel_source import KernelSource, NotFound, NotTriton
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.tasks.input_variants import PLAIN, Variant
from weir.kernel_eval.tasks.seeds import derive_seed
from weir.kernel_eval.timing.roofline import Speed

MIN_COVERAGE = 0.1  # a triangular or padded answer has elements that no kernel needs to store
_PATIENCE = 2.0  # in a replay every address is checked
_PROVING = frozenset({"kernel_is_not_triton", "replay_differs"})


class Kernels(NamedTuple):
    """What a candidate launched: Triton's kernels as a module's source, others as machine code."""

    source: str
    codes: tuple[bytes, ...] = ()


def is_asked_for(trace: Trace, relaxed: frozenset[str]) -> bool:
    """Whether a proof is needed, and can be had: a task that allows library calls may launch nothing."""
    return bool(trace.launched) and not relaxed & _PROVING


def kernels_of(tree: ast.Module, trace: Trace) -> str:
    """The source of what was launched. Raises `Found`."""
    launched = [(launch.kernel, launch.line) for launch in trace.launches]
    passed = [v.name for launch in trace.launches for v in launch.arguments.values() if isinstance(v, Named)]
    try:
        with source_policy.reading():
            return KernelSource(tree).extract([*launched, *((name, 0) for name in passed if name.isidentifier())])
    except NotTriton as error:
        raise broken("kernel_is_not_triton", str(error)) from None
    except NotFound as error:
        raise broken("kernel_is_not_triton", f"{error}: define it with def at the top of the module") from None


def replay(
    worker: WorkerChannel, kernels: Kernels, trace: Trace, arena: Arena, timeout_s: float, relaxed: frozenset[str]
) -> list[torch.Tensor]:
    """What the trace answers to the inputs in the arena. Raises `Found`."""
    reason = provenance.untransferable(trace)
    if reason is not None:
        if kernels.codes:
            raise Found(Stage.LOADED, Fault.UNSUPPORTED, f"the call cannot be judged: {reason}")
        raise broken("replay_differs", f"the first call cannot be made without the candidate: {reason}")
    question = Replay(kernels.source, provenance.needed(trace, relaxed), arena.spec, kernels.codes)
    try:
        replayed = worker.ask(question, Replayed, "replay", timeout_s * _PATIENCE, arena.fd)
    except Found as found:
        if found.fault is not Fault.RUNTIME_ERROR:
            raise
        message = f"the launches of the first call do not run without the candidate: {found.message}"
        raise broken("replay_differs", message) from None
    if "kernel_did_no_work" not in relaxed:
        for index, share in enumerate(replayed.coverage):
            if share < MIN_COVERAGE:
                raise broken("kernel_did_no_work", f"kernels stored {share:.0%} of output {index}")
    return arena.take_outputs()


def prove(job: Job, trials: Trials, lease: socket.socket, kernels: Kernels, serve: Serve) -> Speed | None:
    """The launches of the first call must answer; how fast they do, where that is asked for. Raises `Found`."""
    assert trials.first is not None
    limits, reference, relaxed = job.limits, trials.reference, frozenset(job.relaxed_rules)
    on_gpu = limits.gpu is not None
    asked_once = trials.num_answered < 2 or "varied_inputs" in relaxed
    variant = PLAIN if asked_once else Variant(scale=-1.0)
    inputs, expected = reference.question(trials.model, derive_seed(job.secret, "proof"), variant)
    given = [tensors_among(inputs), trials.state]
    arena = Arena(given, expected.outputs, limits.guard_bytes, on_gpu=on_gpu)
    worker = WorkerChannel(lease, limits, trials.patience, serve=serve)
    try:
        if on_gpu:
            worker.prepare(limits.load_timeout_s)
        timeout_s = limits.call_timeout_s + (limits.compile_timeout_s if on_gpu else 0.0)
        outputs = replay(worker, kernels, trials.first, arena, timeout_s, relaxed)
        wrong = difference(reference, trials.model, inputs, expected, outputs)
        if wrong is not None:
            raise broken("replay_differs", f"other inputs, without the candidate: {wrong.message}")
        if not (on_gpu and job.num_perf_trials):
            return None
        return SpeedCheck(job, reference, trials.model, trials.state, worker).run(len(trials.first.steps))
    finally:
        worker.end()
        worker.close()
        arena.close()
