"""The limits of one evaluation, sent from the server to the judge and to the forkservers."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one worker and of each phase, and the device or target of the evaluation."""

    memory_bytes: int  # address space beyond the worker's size at its start
    task_memory_bytes: int  # the same for the judge, in which the task's own code runs
    cpu_s: int
    output_bytes: int  # of stdout and stderr together, and of each file
    load_timeout_s: float
    init_timeout_s: float
    call_timeout_s: float
    reference_timeout_s: float
    candidate_timeout_s: float  # for all calls of a candidate together
    guard_bytes: int
    compile_timeout_s: float
    native_timeout_s: float
    task_call_s: float  # task checks reject references that take longer for a call
    perf_trials: int  # timed calls in the interpreter, at most
    tmp_bytes: int = 32 << 20  # of the temporary folder, if it is a file system of its own
    gpu: str | None = None  # UUID of the worker's GPU; None: the interpreter
    target: str  # the architecture to compile for, a name in `targets.TARGETS`
