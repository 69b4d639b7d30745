"""What one evaluation may use, and what it is for. Goes from the server to the judge, and to whoever forks workers."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on one worker, and on each phase of its work."""

    memory_bytes: int  # address space beyond what the worker has at its start
    task_memory_bytes: int  # the same for a judge, in which the task's own code runs
    cpu_s: int
    output_bytes: int  # of stdout and stderr together, and of any file
    load_timeout_s: float
    init_timeout_s: float
    call_timeout_s: float
    reference_timeout_s: float
    candidate_timeout_s: float  # that a judge waits for a candidate, all of its calls together
    guard_bytes: int
    compile_timeout_s: float
    native_timeout_s: float
    task_call_s: float  # a task whose reference takes longer for a call is rejected when it is checked
    perf_trials: int  # timed calls in the interpreter, at most
    tmp_bytes: int = 32 << 20  # of the temporary folder, where it is a file system of its own
    gpu: str | None = None  # the UUID of the one that a worker may use; None: it has none, and interprets
    target: str  # a name in `targets.TARGETS`: what kernels are compiled for
