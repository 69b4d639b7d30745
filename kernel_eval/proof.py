"""The proof that a candidate's kernels give the answer: its first call, run again without it, on inputs it never saw.

The trace of the first call was in the judge's hands before the inputs of the proof existed, and what it runs on are
the candidate's kernels as they stand in its source, in a process that has seen nothing else of it. So nothing that the
candidate's own process computed, cached, patched or reported can be part of the answer.

Not proven: that the candidate's process takes the same way in every call (where a call was timed, what is proven to be
right may not be what was fast), and that a kernel does more than it has to for a task whose answer is a copy.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

import torch

from weir.kernel_eval import evidence, policy
from weir.kernel_eval.arena import Arena
from weir.kernel_eval.judgement import Found, broken
from weir.kernel_eval.kernel_source import KernelSource, NotFound, NotTriton
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.trace import Named, Trace
from weir.kernel_eval.worker_channel import WorkerChannel
from weir.kernel_eval.worker_messages import Replay, Replayed

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
        with policy.reading():
            return KernelSource(tree).extract([*launched, *((name, 0) for name in passed if name.isidentifier())])
    except NotTriton as error:
        raise broken("kernel_is_not_triton", str(error)) from None
    except NotFound as error:
        raise broken("kernel_is_not_triton", f"{error}: define it with def at the top of the module") from None


def replay(
    worker: WorkerChannel, kernels: Kernels, trace: Trace, arena: Arena, timeout_s: float, relaxed: frozenset[str]
) -> list[torch.Tensor]:
    """What the trace answers to the inputs in the arena. Raises `Found`."""
    reason = evidence.untransferable(trace)
    if reason is not None:
        if kernels.codes:
            raise Found(Stage.LOADED, Fault.UNSUPPORTED, f"the call cannot be judged: {reason}")
        raise broken("replay_differs", f"the first call cannot be made without the candidate: {reason}")
    question = Replay(kernels.source, evidence.needed(trace, relaxed), arena.spec, kernels.codes)
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
