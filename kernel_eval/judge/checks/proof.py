"""The proof of native code, which a player runs without the candidate, and a CPU's opinion of a GPU's record.

For native code the judge holds the trace of the first call before the inputs of the proof exist. A player runs its
launches of the machine code that the judge had built, in a process that has seen nothing else of the candidate, and is
timed there. Therefore nothing that the candidate's own process computed, cached, patched or reported can be part of the
answer. Trials of Triton's kernels are played in the first place (`played_trials.py`).

Not proven of native code: that the candidate's process does the same work in every call (the replayed call may be
slower than the candidate's timed calls), and that a kernel does more than a copy for a task whose answer is a copy.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence

import msgspec
import torch

from weir.kernel_eval.ipc.forkserver import PLAYER
from weir.kernel_eval.ipc.job import Job
from weir.kernel_eval.ipc.messages import Done, LoadRecord, Play, Played, Recorded
from weir.kernel_eval.ipc.tensor_arena import Arena, tensors_among
from weir.kernel_eval.ipc.trace import Trace
from weir.kernel_eval.judge.channel.deadline import Deadline
from weir.kernel_eval.judge.channel.faults import FaultDetected, rule_broken
from weir.kernel_eval.judge.channel.worker_channel import WorkerChannel
from weir.kernel_eval.judge.checks.expected_answers import difference, least_stored
from weir.kernel_eval.judge.checks.reference_operators import hybrid_details
from weir.kernel_eval.judge.checks.speedup import SpeedCheck
from weir.kernel_eval.judge.checks.trials import Trials
from weir.kernel_eval.judge.source import provenance
from weir.kernel_eval.judge.state.questions import Subject
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.tasks.input_variants import HARDEST, PLAIN
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.tasks.seeds import derive_seed
from weir.kernel_eval.timing.roofline import Speed

AGREES = "agrees"
_TIMEOUT_FACTOR = 2.0  # a replay checks every address


def is_needed(trace: Trace, relaxed: frozenset[str]) -> bool:
    """Whether the task asks for a proof and a kernel was launched; a task that allows library calls may launch none."""
    return bool(trace.launched) and "replay_differs" not in relaxed


def second_opinion(
    job: Job,
    lease: socket.socket,
    deadline: Deadline,
    reference: Reference,
    subject: Subject,
    recorded: Recorded,
) -> str:
    """What a CPU finds that plays the IR of a GPU's record on inputs of its own: "agrees", or why it finds nothing.

    Raises `FaultDetected` if the answer that it gets is wrong.
    """
    limits = job.limits
    trace = provenance.needed(recorded.trace, frozenset(job.relaxed_rules), permitted=job.permitted)
    inputs, expected, _ = reference.question(subject.model, derive_seed(job.secret, "cross-check"), PLAIN)
    arguments = [[tensor.cpu() for tensor in part] for part in (tensors_among(inputs), subject.state)]
    on_host = msgspec.structs.replace(limits, gpu=None)
    with contextlib.closing(Arena(arguments, [out.cpu() for out in expected.outputs], limits.guard_bytes)) as arena:
        try:
            with _contained(lease, on_host, deadline, PLAYER) as player:
                player.request(LoadRecord(trace, recorded.irs), Done, "replay", limits.call_timeout_s)
                play = Play(0, arena.spec, marks=False)
                player.request(play, Played, "replay", limits.call_timeout_s * _TIMEOUT_FACTOR, arena.fd)
        except FaultDetected as error:
            if error.fault not in (Fault.UNSUPPORTED, Fault.TIMEOUT, Fault.OUT_OF_MEMORY):
                raise
            return f"no opinion: {error.message}"
        outputs = [out.to(wanted.device) for out, wanted in zip(arena.take_outputs(), expected.outputs, strict=True)]
    wrong = difference(reference, subject.model, inputs, expected, outputs)
    if wrong is not None:
        raise rule_broken("replay_differs", f"a CPU that plays the IR of the same kernels: {wrong.message}")
    return AGREES


@contextlib.contextmanager
def _contained(lease: socket.socket, limits: Limits, deadline: Deadline, role: str) -> Iterator[WorkerChannel]:
    worker = WorkerChannel(lease, limits, deadline, role)
    try:
        yield worker
    finally:
        worker.end_and_close()


def prove(job: Job, trials: Trials, lease: socket.socket, codes: Sequence[bytes]) -> Speed | None:
    """Play the launches of the first call and compare the answer; then time them, if the job asks for it.

    Raises `FaultDetected` if they do not run, or if the answer is wrong.
    """
    trace = trials.first
    assert trace is not None
    limits, reference, relaxed = job.limits, trials.reference, frozenset(job.relaxed_rules)
    called_once = trials.num_answered < 2 or "varied_inputs" in relaxed
    variant = PLAIN if called_once else HARDEST
    inputs, expected, _ = reference.question(trials.model, derive_seed(job.secret, "proof"), variant)
    arguments = [tensors_among(inputs), trials.state]
    with (
        _contained(lease, limits, trials.deadline, PLAYER) as player,
        contextlib.closing(Arena(arguments, expected.outputs, limits.guard_bytes, on_gpu=True)) as arena,
    ):
        player.prepare(limits.load_timeout_s)
        outputs = _played(player, trace, tuple(codes), arena, job)
        wrong = difference(reference, trials.model, inputs, expected, outputs)
        if wrong is not None:
            raise rule_broken("replay_differs", f"other inputs, without the candidate: {wrong.message}")
        work = provenance.torch_work(trace, relaxed, permitted=job.permitted)
        trials.details |= hybrid_details(work, trials.model, inputs)
        if not job.num_perf_trials:
            return None
        return SpeedCheck(job, reference, trials.model, trials.state, player).run(len(trace.steps))


def _played(
    player: WorkerChannel, trace: Trace, codes: tuple[bytes, ...], arena: Arena, job: Job
) -> list[torch.Tensor]:
    """The outputs that the trace gives for the inputs in the arena. Raises `FaultDetected`."""
    relaxed, permitted = frozenset(job.relaxed_rules), job.permitted
    reason = provenance.untransferable(trace)
    if reason is not None:
        raise FaultDetected(Stage.LOADED, Fault.UNSUPPORTED, f"the call cannot be judged: {reason}")
    timeout_s = job.limits.call_timeout_s * _TIMEOUT_FACTOR
    try:
        needed = provenance.needed(trace, relaxed, permitted=permitted)
        player.request(LoadRecord(needed, (), codes=codes), Done, "replay", timeout_s)
        played = player.request(Play(0, arena.spec), Played, "replay", timeout_s, arena.fd)
    except FaultDetected as error:
        if error.fault is not Fault.RUNTIME_ERROR:
            raise
        message = f"the launches of the first call do not run without the candidate: {error.message}"
        raise rule_broken("replay_differs", message) from None
    outputs = arena.take_outputs()
    torch_may_store = bool(provenance.torch_work(trace, relaxed, permitted=permitted))
    if "kernel_did_no_work" not in relaxed and not torch_may_store:
        for index, (share, output) in enumerate(zip(played.coverage, outputs, strict=True)):
            if share < least_stored(output):
                raise rule_broken("kernel_did_no_work", f"kernels stored {share:.0%} of output {index}")
    return outputs
