"""The messages between a client and the server: tasks, requests, results, and the names of all faults.

Invariant: a result with a reward is a verdict on the candidate. If a fault is the server's, `raw_reward` is null on the
wire and the client raises instead of returning, so that no outage is trained on.
"""

from __future__ import annotations

import enum
from typing import Any, Literal

import msgspec


class Fault(enum.StrEnum):
    """Why an evaluation did not end in a correct answer."""

    # the candidate
    SYNTAX_ERROR = "syntax_error"
    IMPORT_ERROR = "import_error"
    MISSING_ENTRY_POINT = "missing_entry_point"
    COMPILE_ERROR = "compile_error"
    TRITON_COMPILE_ERROR = "triton_compile_error"
    UNSUPPORTED_ARCH = "unsupported_arch"
    INIT_ERROR = "init_error"
    RUNTIME_ERROR = "runtime_error"
    SHAPE_MISMATCH = "shape_mismatch"
    DTYPE_MISMATCH = "dtype_mismatch"
    NON_FINITE = "non_finite"
    OUTPUT_MISMATCH = "output_mismatch"
    NONDETERMINISTIC = "nondeterministic"
    # the candidate, as reported by the device or the operating system
    ILLEGAL_ACCESS = "illegal_access"
    MEMORY_FAULT = "memory_fault"  # a guard zone was written to
    SEGFAULT = "segfault"
    MISALIGNED = "misaligned"
    DEVICE_ASSERT = "device_assert"
    SHARED_MEM_EXCEEDED = "shared_mem_exceeded"
    LAUNCH_FAILURE = "launch_failure"
    OUT_OF_MEMORY = "out_of_memory"
    HOST_OOM_KILLED = "host_oom_killed"
    # the candidate, by leaving the protocol
    TIMEOUT = "timeout"
    EARLY_EXIT = "early_exit"
    KILLED = "killed"
    OUTPUT_FLOOD = "output_flood"
    PROTOCOL_ERROR = "protocol_error"
    # policy
    REWARD_HACK = "reward_hack"  # `details.rule` names the rule
    SANDBOX_VIOLATION = "sandbox_violation"
    # it compiles, and no device here can run it: correctness is unknown
    NOT_RUN = "not_run"
    # ours
    INVALID_REFERENCE = "invalid_reference"
    SERVER_ERROR = "server_error"
    GPU_UNHEALTHY = "gpu_unhealthy"
    UNSUPPORTED = "unsupported"

    @property
    def ours(self) -> bool:
        """The server or the task is at fault, not the candidate: there is no reward, not even 0."""
        return self in _OURS

    @property
    def policy(self) -> bool:
        """The candidate broke a rule, whatever it computed."""
        return self in _POLICY

    @property
    def candidate(self) -> bool:
        """The candidate does not work."""
        return not self.ours and not self.policy

    @property
    def retryable(self) -> bool:
        """The same request may succeed when it is sent again."""
        return self in _RETRYABLE


_OURS = frozenset({Fault.INVALID_REFERENCE, Fault.SERVER_ERROR, Fault.GPU_UNHEALTHY, Fault.UNSUPPORTED})
_POLICY = frozenset({Fault.REWARD_HACK, Fault.SANDBOX_VIOLATION})
_RETRYABLE = frozenset({Fault.SERVER_ERROR, Fault.GPU_UNHEALTHY})


class Problem(enum.StrEnum):
    """Why a task cannot be judged."""

    DOES_NOT_RUN = "does_not_run"
    UNSUPPORTED = "unsupported"  # by the judge, on this machine
    NO_INPUTS = "no_inputs"
    TOO_SLOW = "too_slow"
    NONDETERMINISTIC = "nondeterministic"
    EMPTY_OUTPUT = "empty_output"
    NON_FINITE = "non_finite"
    ALL_ZERO = "all_zero"
    TINY_OUTPUT = "tiny_output"
    CONSTANT_OUTPUT = "constant_output"
    AMPLIFIES_ROUNDING = "amplifies_rounding"
    UNKNOWN_RULE = "unknown_rule"  # relax_rules names a rule that does not exist


class KernelTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task for an agent, with the reference to judge it by, in KernelBench's form."""

    task_id: str
    prompt: str  # the request to the agent
    reference_src: str  # Model, get_inputs() and get_init_inputs()
    candidate_template: str | None = (
        None  # text in which "{kernel}" is replaced by the answer's code; None: the code alone
    )
    backend: Literal["triton", "cuda", "hip"] = "triton"
    split: Literal["train", "heldout"] = "train"
    family: str = ""
    relax_rules: list[str] = []  # rules that candidates for this task may break; a list, as it comes from JSON


class EvalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of POST /eval: the fields common to evaluation servers, then Weir's own. Unknown fields are ignored."""

    original_model_src: str
    custom_model_src: str
    seed_num: int = 42
    num_correct_trials: int = 5
    num_perf_trials: int = 100
    verbose: bool = False
    measure_performance: bool = False
    preferred_device: int | str | None = None
    backend: Literal["triton", "cuda", "hip"] = "triton"
    relax_rules: tuple[str, ...] = ()  # names of rules (GET /health) that this candidate may break
    encoding: Literal["utf-8", "base64"] = "utf-8"  # of the two sources
    job_id: str | None = None  # evaluated once: a repeated id joins the evaluation, or gets the same answer
    use_cache: bool = False  # reuse the answer of an earlier evaluation of the same content
    recompile: bool = False  # of a correct answer: compile its kernels again, from its source alone, and compare


class TaskCheckRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of POST /tasks/check."""

    reference_src: str
    seed_num: int = 42
    relax_rules: tuple[str, ...] = ()  # of the task; an unknown rule is a problem of the task


class TaskCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a task can be judged, and how long its reference takes."""

    judgeable: bool
    problem: Problem | None = None
    message: str = ""
    call_s: float | None = None  # of one call of Model; None if none ended
    outputs: list[list[str | int]] = []  # dtype and shape of each


class EvalReply(msgspec.Struct, frozen=True, kw_only=True):
    """Body of every answer to a well-formed POST /eval. `raw_reward` is null exactly when the fault is ours.

    `fault_message` is null exactly when `fault` is.
    """

    compiled: bool
    correct: bool
    fault: Fault | None
    fault_message: str | None
    raw_reward: float | None
    sandbox: str
    mode: Literal["interpreter", "gpu"]
    trials: int
    seconds: float
    speedup: float | None = None
    details: dict[str, Any] = {}


class EvalResult(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict on a candidate."""

    compiled: bool  # it imports and has its entry point
    correct: bool  # right on every trial, and no rule was broken
    fault: str | None  # a `Fault`
    fault_message: str | None  # None if there is no fault
    raw_reward: float
    sandbox: str
    mode: Literal["interpreter", "gpu"]
    trials: int  # answered and compared
    seconds: float  # from the start of the evaluation to its verdict, without queueing
    speedup: float | None = None  # against the reference; None if it was not measured on a device
    details: dict[str, Any] = {}
