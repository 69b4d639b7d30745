"""Compiles the kernels of a correct answer again, from its source alone, to find processes that sent something else.

Recorders run the candidate, which may patch the front end in both of them alike. The kernels are taken from the source
as text, and compiled in a process that has seen nothing else of the candidate. A kernel that
cannot be taken out so (one in a closure) is no fault: then nothing is shown, and the result says why.
"""

from __future__ import annotations

import ast
import re
import socket
from collections.abc import Sequence
from typing import Any

from weir.kernel_eval.ipc.forkserver import RECOMPILER
from weir.kernel_eval.ipc.framing import MAX_FRAME_BYTES
from weir.kernel_eval.ipc.job import Job
from weir.kernel_eval.ipc.messages import KernelIr, Recompile, Recompiled, Recorded, Specialized
from weir.kernel_eval.judge.channel.deadline import Deadline
from weir.kernel_eval.judge.channel.faults import rule_broken
from weir.kernel_eval.judge.channel.worker_channel import WorkerChannel
from weir.kernel_eval.judge.source import source_policy
from weir.kernel_eval.judge.source.kernel_source import KernelSource, NotFound, NotTriton

SAME = "same"
# types as a front end writes them; it evaluates what else the text of a tensor descriptor's holds
_TYPE = re.compile(r"\*{0,2}[A-Za-z][A-Za-z0-9]*|tensordesc<[A-Za-z][A-Za-z0-9]*\[[0-9, ]+\]>")


def recompiled(
    job: Job, lease: socket.socket, deadline: Deadline, tree: ast.Module, records: Sequence[Recorded]
) -> dict[str, Any]:
    """The result for the details of a verdict. Raises `FaultDetected` if the source gives other IR than was played."""
    pieces = [(ir, made) for record in records for ir, made in _pieces(record)]
    irs: list[KernelIr] = []
    kernels: list[Specialized] = []
    for ir, made in pieces:
        if made is None:
            return _not_shown(f"{ir.kernel} has a constant of a type that no other process can be given")
        for parameter, written in made.signature.items():
            if not _TYPE.fullmatch(written):
                return _not_shown(f"{parameter} of {ir.kernel} has a type that is none of Triton's")
        if ir not in irs:
            irs.append(ir)
            kernels.append(made)
    try:
        with source_policy.reading():
            source = KernelSource(tree).extract((kernel.kernel, kernel.line) for kernel in kernels)
    except (NotTriton, NotFound) as error:
        return _not_shown(str(error))
    request = Recompile(source, tuple(kernels), tuple(ir.options for ir in irs), job.limits.target)
    again = _ask(job, lease, deadline, request)
    for ir, text in zip(irs, again.texts, strict=False):
        if ir.text != text:
            raise rule_broken(
                "ir_differs", f"{ir.kernel} gives other IR when it is compiled from the source of the kernels alone"
            )
    if again.failure or len(again.texts) < len(irs):
        return _not_shown(f"{irs[len(again.texts)].kernel} does not compile without the rest: {again.failure}")
    return {"recompiled": SAME}


def _ask(job: Job, lease: socket.socket, deadline: Deadline, request: Recompile) -> Recompiled:
    worker = WorkerChannel(lease, job.limits, deadline, RECOMPILER)
    try:
        worker.send(request, ())
        return worker.receive(Recompiled, "compile", job.limits.compile_timeout_s, MAX_FRAME_BYTES)
    finally:
        worker.end_and_close()


def _pieces(record: Recorded) -> list[tuple[KernelIr, Specialized | None]]:
    """Each IR with what it was made of, if the recorder has said so."""
    made = (*record.made_of, *[None] * len(record.irs))
    return list(zip(record.irs, made, strict=False))


def _not_shown(reason: str) -> dict[str, Any]:
    return {"recompiled": f"not shown: {reason}"}
