"""The proof that a candidate's kernels compute the answer: its first call, replayed without it on inputs it never saw.

The judge holds the trace of the first call before the inputs of the proof exist. The replay runs the candidate's
kernels, as its source defines them, in a process that has seen nothing else of it, and is timed there on a GPU.
Therefore nothing that the candidate's own process computed, cached, patched or reported can be part of the answer.

Not proven: that the candidate's process does the same work in every call (the replayed call may be slower than the
candidate's timed calls), and that a kernel does more than a copy for a task whose answer is a copy.
"""

from __future__ import annotations

import ast
import contextlib
import socket
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import torch

from weir.kernel_eval.ipc.forkserver import PLAYER, RERECORDER, Leases
from weir.kernel_eval.ipc.job import Job
from weir.kernel_eval.ipc.messages import Done, LoadRecord, Play, Played, Replay, Replayed, Rerecord, Rerecorded
from weir.kernel_eval.ipc.tensor_arena import Arena, tensors_among
from weir.kernel_eval.ipc.trace import Named, Trace
from weir.kernel_eval.judge.channel.faults import FaultDetected, rule_broken
from weir.kernel_eval.judge.channel.worker_channel import RequestHandler, WorkerChannel
from weir.kernel_eval.judge.checks.expected_answers import difference
from weir.kernel_eval.judge.checks.reference_operators import hybrid_details
from weir.kernel_eval.judge.checks.speedup import SpeedCheck
from weir.kernel_eval.judge.checks.trials import Trials
from weir.kernel_eval.judge.source import provenance, source_policy
from weir.kernel_eval.judge.source.kernel_source import KernelSource, NotFound, NotTriton
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.tasks.input_variants import HARDEST, PLAIN
from weir.kernel_eval.tasks.seeds import derive_seed
from weir.kernel_eval.timing.roofline import Speed

MIN_COVERAGE = 0.1  # a triangular or padded answer has elements that no kernel needs to store
AGREES = "agrees"
_TIMEOUT_FACTOR = 2.0  # a replay checks every address
_PROOF_RULES = frozenset({"kernel_is_not_triton", "replay_differs"})


class Kernels(NamedTuple):
    """The kernels that a candidate launched: those of Triton as a module's source, others as machine code."""

    source: str
    codes: tuple[bytes, ...] = ()


def is_needed(trace: Trace, relaxed: frozenset[str]) -> bool:
    """Whether the task asks for a proof and a kernel was launched; a task that allows library calls may launch none."""
    return bool(trace.launched) and not relaxed & _PROOF_RULES


def kernels_of(tree: ast.Module, trace: Trace) -> str:
    """The source of the launched kernels. Raises `FaultDetected` if they cannot be extracted or are not Triton."""
    launched = [(launch.kernel, launch.line) for launch in trace.launches]
    passed = [v.name for launch in trace.launches for v in launch.arguments.values() if isinstance(v, Named)]
    try:
        with source_policy.reading():
            return KernelSource(tree).extract([*launched, *((name, 0) for name in passed if name.isidentifier())])
    except NotTriton as error:
        raise rule_broken("kernel_is_not_triton", str(error)) from None
    except NotFound as error:
        raise rule_broken("kernel_is_not_triton", f"{error}: define it with def at the top of the module") from None


def replay(
    worker: WorkerChannel, kernels: Kernels, trace: Trace, arena: Arena, timeout_s: float, job: Job
) -> list[torch.Tensor]:
    """The outputs that the trace gives for the inputs in the arena. Raises `FaultDetected`."""
    relaxed, permitted = frozenset(job.relaxed_rules), job.permitted
    reason = provenance.untransferable(trace)
    if reason is not None:
        if kernels.codes:
            raise FaultDetected(Stage.LOADED, Fault.UNSUPPORTED, f"the call cannot be judged: {reason}")
        raise rule_broken("replay_differs", f"the first call cannot be made without the candidate: {reason}")
    request = Replay(kernels.source, provenance.needed(trace, relaxed, permitted=permitted), arena.spec, kernels.codes)
    try:
        replayed = worker.request(request, Replayed, "replay", timeout_s * _TIMEOUT_FACTOR, arena.fd)
    except FaultDetected as error:
        if error.fault is not Fault.RUNTIME_ERROR:
            raise
        message = f"the launches of the first call do not run without the candidate: {error.message}"
        raise rule_broken("replay_differs", message) from None
    torch_may_store = bool(provenance.torch_work(trace, relaxed, permitted=permitted))
    if "kernel_did_no_work" not in relaxed and not torch_may_store:
        for index, share in enumerate(replayed.coverage):
            if share < MIN_COVERAGE:
                raise rule_broken("kernel_did_no_work", f"kernels stored {share:.0%} of output {index}")
    return arena.take_outputs()


def second_opinion(job: Job, leases: Leases, trials: Trials, kernels: Kernels) -> str:
    """What a CPU finds that plays the IR of the same kernels on inputs of its own: "agrees", or why it finds nothing.

    Raises `FaultDetected` if the answer that it gets is wrong.
    """
    assert trials.first is not None
    reference, limits = trials.reference, job.limits
    trace = provenance.needed(trials.first, frozenset(job.relaxed_rules), permitted=job.permitted)
    inputs, expected, _ = reference.question(trials.model, derive_seed(job.secret, "cross-check"), PLAIN)
    arguments = [[tensor.cpu() for tensor in part] for part in (tensors_among(inputs), trials.state)]
    on_host = msgspec.structs.replace(limits, gpu=None)
    with contextlib.closing(Arena(arguments, [out.cpu() for out in expected.outputs], limits.guard_bytes)) as arena:
        request = Rerecord(kernels.source, trace, arena.spec, limits.target)
        with _contained(leases.recorder, on_host, trials, RERECORDER) as worker:
            made = worker.request(request, Rerecorded, "compile", limits.compile_timeout_s, arena.fd)
        if made.failure:
            return f"no opinion: {made.failure}"
        try:
            with _contained(leases.second_recorder, on_host, trials, PLAYER) as player:
                player.request(LoadRecord(made.trace, made.irs), Done, "replay", limits.call_timeout_s)
                play = Play(0, arena.spec, marks=False)
                player.request(play, Played, "replay", limits.call_timeout_s * _TIMEOUT_FACTOR, arena.fd)
        except FaultDetected as error:
            if error.fault not in (Fault.UNSUPPORTED, Fault.TIMEOUT):
                raise
            return f"no opinion: {error.message}"
        outputs = [out.to(wanted.device) for out, wanted in zip(arena.take_outputs(), expected.outputs, strict=True)]
    wrong = difference(reference, trials.model, inputs, expected, outputs)
    if wrong is not None:
        raise rule_broken("replay_differs", f"a CPU that plays the IR of the same kernels: {wrong.message}")
    return AGREES


@contextlib.contextmanager
def _contained(lease: socket.socket, limits: Limits, trials: Trials, role: str) -> Iterator[WorkerChannel]:
    worker = WorkerChannel(lease, limits, trials.deadline, role)
    try:
        yield worker
    finally:
        worker.end_and_close()


def prove(
    job: Job, trials: Trials, lease: socket.socket, kernels: Kernels, handle_request: RequestHandler
) -> Speed | None:
    """Replay the launches of the first call and compare the answer; then time them, if the job asks for it on a GPU.

    Raises `FaultDetected` if the replay fails or its answer is wrong.
    """
    assert trials.first is not None
    limits, reference, relaxed = job.limits, trials.reference, frozenset(job.relaxed_rules)
    on_gpu = limits.gpu is not None
    called_once = trials.num_answered < 2 or "varied_inputs" in relaxed
    variant = PLAIN if called_once else HARDEST
    inputs, expected, _ = reference.question(trials.model, derive_seed(job.secret, "proof"), variant)
    arguments = [tensors_among(inputs), trials.state]
    arena = Arena(arguments, expected.outputs, limits.guard_bytes, on_gpu=on_gpu)
    worker = WorkerChannel(lease, limits, trials.deadline, handle_request=handle_request)
    try:
        if on_gpu:
            worker.prepare(limits.load_timeout_s)
        timeout_s = limits.call_timeout_s + (limits.compile_timeout_s if on_gpu else 0.0)
        outputs = replay(worker, kernels, trials.first, arena, timeout_s, job)
        wrong = difference(reference, trials.model, inputs, expected, outputs)
        if wrong is not None:
            raise rule_broken("replay_differs", f"other inputs, without the candidate: {wrong.message}")
        work = provenance.torch_work(trials.first, relaxed, permitted=job.permitted)
        trials.details |= hybrid_details(work, trials.model, inputs)
        if not (on_gpu and job.num_perf_trials):
            return None
        return SpeedCheck(job, reference, trials.model, trials.state, worker).run(len(trials.first.steps))
    finally:
        worker.end()
        worker.close()
        arena.close()
