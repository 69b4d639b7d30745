"""Settings of the kernel-evaluation server: section [kernel_eval] of weir.toml."""

from __future__ import annotations

import os
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from weir.kernel_eval.limits import Limits
from weir.kernel_eval.sandbox.levels import SandboxLevel

_CANDIDATE_SHARE = 2 / 3  # of an evaluation's time; the rest is for the reference and the judge


class KernelEvalConfig(BaseModel):
    """Settings of one server. Limits apply to each evaluation separately."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field(default="127.0.0.1", description="Address to listen on; beyond loopback an api_key is required.")
    port: int = Field(default=8300, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    url: str | None = Field(default=None, description="URL of the server for clients; default: http://host:port.")
    api_key: str | None = Field(
        default=None, description="Bearer key that requests must send; none on loopback by default."
    )
    min_sandbox: SandboxLevel = Field(
        default=SandboxLevel.RLIMITS, description="Refuse to start below this level: rlimits, landlock or bubblewrap."
    )
    sandbox: SandboxLevel | None = Field(
        default=None, description="Use this level; default: the strongest that works here."
    )
    concurrency: int | None = Field(
        default=None,
        ge=1,
        description="Evaluations at a time on each machine; default: cores + 1, or all processors that Ray offers.",
    )
    ray: str | None = Field(
        default=None,
        description="Ray cluster whose machines judge: its address, or auto for the one running on this machine.",
    )
    max_queue: int = Field(default=1024, ge=1, description="Evaluations waiting before the server answers 503.")
    max_trials: int = Field(default=32, ge=1, description="Largest num_correct_trials of a request.")
    reward: str = Field(
        default="default",
        description="Reward function: default, by_stage, speedup, log_speedup, fast_1, fast_1.5, fast_2, or "
        "module:function of a Python module.",
    )
    hybrid: Literal["refuse", "scale", "allow"] = Field(
        default="refuse",
        description="Answers that torch computes a part of: refused; rewarded by the part that kernels did; or "
        "rewarded in full if hybrid_operators names the operators.",
    )
    hybrid_operators: list[str] = Field(
        default=[],
        description="Operators that torch may compute beside kernels, such as sum and add; scale: [] means any.",
    )
    perf_trials: int = Field(
        default=5, ge=0, description="Most calls that measure_performance adds in the interpreter."
    )
    gpus: list[int] | None = Field(
        default=None,
        description="Numbers of the GPUs to judge on; default: all that torch can use; []: the interpreter.",
    )
    baselines: str | None = Field(
        default=None,
        description="File that keeps the references' times on GPUs; default: they are kept while the server runs.",
    )
    max_body_bytes: int = Field(default=8 << 20, ge=1024, description="Largest request body.")
    max_batch: int = Field(default=1024, ge=1, description="Items of one POST /eval/batch.")
    max_batch_bytes: int = Field(default=64 << 20, ge=1024, description="Largest body of POST /eval/batch.")
    cache_entries: int = Field(default=4096, ge=0, description="Results kept for requests with use_cache.")
    cache_bytes: int = Field(default=256 << 20, ge=0, description="Size of all kept results together.")
    memory_bytes: int = Field(
        default=1 << 30, ge=1 << 26, description="Address space that a candidate may add to the worker's."
    )
    task_memory_bytes: int = Field(
        default=8 << 30, ge=1 << 28, description="Address space that a task's own code may add to the judge's."
    )
    cpu_s: int = Field(default=60, ge=1, description="Processor seconds of one worker.")
    output_bytes: int = Field(
        default=1 << 20, ge=4096, description="Largest output of a candidate, and size of each file that it writes."
    )
    load_timeout_s: float = Field(default=10.0, gt=0, description="Wall time for importing the candidate.")
    init_timeout_s: float = Field(default=10.0, gt=0, description="Wall time for constructing ModelNew.")
    call_timeout_s: float = Field(default=20.0, gt=0, description="Wall time of one call of ModelNew.")
    reference_timeout_s: float = Field(
        default=30.0,
        gt=0,
        description="Processor time of one step of the task's own code; wall time: eight times as much.",
    )
    task_call_s: float = Field(
        default=10.0,
        gt=0,
        description="`weir tasks check` rejects tasks whose reference takes more processor time for a call.",
    )
    evaluation_timeout_s: float = Field(
        default=300.0,
        gt=0,
        description="Wall time of one evaluation, then its judge is killed. Two thirds are the candidate's.",
    )
    target: Literal["sm_80", "sm_86", "sm_89", "sm_90", "sm_100"] = Field(
        default="sm_90", description="Architecture that kernels are compiled for without a GPU."
    )
    compile_timeout_s: float = Field(
        default=60.0, gt=0, description="Wall time for compiling all kernels of a candidate."
    )
    native_timeout_s: float = Field(
        default=240.0,
        gt=0,
        description="Wall time for compiling the CUDA C++ of a candidate; torch's headers take most of it.",
    )
    reward_compiled: bool = Field(
        default=False,
        description="Without a GPU, CUDA C++ that compiles earns 0.1 at most; default: it is left out of rewards.",
    )
    cross_check: bool = Field(
        default=False,
        description="On a GPU, a CPU plays the IR of each correct answer's kernels and must find it right too.",
    )
    draws_from: str | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="Draws all inputs from this text and the request, the same each time; for tests of the judge, "
        "since whoever knows it foretells inputs. Default: new randomness in each evaluation.",
    )
    guard_bytes: int = Field(
        default=65536, ge=64, multiple_of=64, description="Guard zone on each side of every tensor."
    )

    @model_validator(mode="after")
    def _check_hybrid(self) -> Self:
        if self.hybrid == "allow" and not self.hybrid_operators:
            raise ValueError("hybrid is 'allow': name the operators in hybrid_operators, such as ['sum', 'add']")
        if self.hybrid == "refuse" and self.hybrid_operators:
            raise ValueError(
                "hybrid_operators has no effect while hybrid is 'refuse': set hybrid to 'scale' or 'allow'"
            )
        return self

    @property
    def torch_operators(self) -> tuple[str, ...] | None:
        """The operators that torch may compute beside kernels; None: all."""
        if self.hybrid == "scale" and not self.hybrid_operators:
            return None
        return tuple(self.hybrid_operators)

    @property
    def base_url(self) -> str:
        """The URL of the server for clients."""
        return self.url or f"http://{self.host}:{self.port}"

    @property
    def num_slots(self) -> int:
        """Evaluations at a time: one more than cores by default, since each sometimes waits for processes to end."""
        return self.concurrency or (os.cpu_count() or 1) + 1

    @property
    def limits(self) -> Limits:
        """The limits of one evaluation, for its judge."""
        return Limits(
            memory_bytes=self.memory_bytes,
            task_memory_bytes=self.task_memory_bytes,
            cpu_s=self.cpu_s,
            output_bytes=self.output_bytes,
            load_timeout_s=self.load_timeout_s,
            init_timeout_s=self.init_timeout_s,
            call_timeout_s=self.call_timeout_s,
            reference_timeout_s=self.reference_timeout_s,
            candidate_timeout_s=self.evaluation_timeout_s * _CANDIDATE_SHARE,
            guard_bytes=self.guard_bytes,
            compile_timeout_s=self.compile_timeout_s,
            native_timeout_s=self.native_timeout_s,
            task_call_s=self.task_call_s,
            perf_trials=self.perf_trials,
            target=self.target,
        )
