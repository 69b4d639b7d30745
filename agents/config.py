"""Settings of `weir run`: servers, agent, number of sessions and their limits."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from weir.kernel_eval.sandbox.levels import SandboxLevel


class AgentsConfig(BaseModel):
    """Sessions of an agent over tasks, as `weir run` starts them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    proxy_url: str | None = Field(
        default=None,
        description="URL of the proxy, without /v1; unset: that of [proxy].",
    )
    control_key: SecretStr | None = Field(
        default=None, description="Key of the proxy's control routes; unset: that of [proxy]."
    )
    kernel_eval_url: str | None = Field(
        default=None, description="URL of the kernel-evaluation server; unset: that of [kernel_eval]."
    )
    kernel_eval_key: SecretStr | None = Field(
        default=None, description="API key of the kernel-evaluation server, if it needs one."
    )
    agent: str = Field(
        default="weir.agents.kernel_agent:solve", description="Import path of the agent: module:function."
    )
    model: str = Field(default="weir", description="Model name in agents' requests.")
    samples: int = Field(default=8, ge=1, description="Sessions of a group, all of them with the same task.")
    concurrency: int = Field(default=16, ge=1, description="Sessions at the same time, over all groups.")
    turns: int = Field(default=2, ge=1, description="Largest number of the agent's answers in a session.")
    max_calls: int | None = Field(
        default=None, ge=1, description="Largest number of calls in a session, enforced by the proxy."
    )
    max_output_tokens: int | None = Field(
        default=None, ge=1, description="Largest number of output tokens in a session, enforced by the proxy."
    )
    max_seconds: float | None = Field(default=None, gt=0, description="Time limit of a session, enforced by the proxy.")
    max_tokens: int = Field(default=2048, ge=1, description="Largest number of tokens in one answer.")
    temperature: float = Field(default=1.0, ge=0.0, description="Sampling temperature; 1 for training.")
    sampling_seed: int | None = Field(
        default=None, description="Seed of the first session of a group; the next ones have the next seeds."
    )
    eval_samples: int = Field(
        default=1,
        ge=0,
        description="Sessions of each held-out task at each version of `weir run --continuous`; 0: none.",
    )
    call_timeout_s: float = Field(
        default=600.0,
        gt=0,
        description="Time limit of one call; has to exceed the time that the gate is closed for an update.",
    )
    call_retries: int = Field(default=6, ge=0, description="Retries of a failed call by the OpenAI client.")
    control_timeout_s: float = Field(default=10.0, gt=0, description="Time limit of one request to the control routes.")
    control_retries: int = Field(
        default=8, ge=0, description="Retries of a control request without an answer, as while a proxy restarts."
    )
    retry_wait_s: float = Field(
        default=0.25, ge=0, description="Wait before the first retry; doubled for each further one, up to 5 s."
    )
    feedback_trials: int = Field(
        default=2, ge=1, description="Correctness trials for feedback; the trainer has its own setting."
    )
    feedback_lines: int = Field(
        default=16, ge=1, description="Lines of the judge's feedback that the model gets; 1 omits the traceback."
    )
    command: str | None = Field(
        default=None, description="Command line of an agent, one process a session; takes precedence over `agent`."
    )
    command_folder: Path | None = Field(
        default=None, description="Folder of the sessions' working folders; unset: `agents` in the store's folder."
    )
    command_keep: Literal["output", "all"] = Field(
        default="output", description="What is kept of a session's folder: what commands printed, or also its files."
    )
    command_environment: dict[str, str] = Field(
        default={}, description="Further variables of commands; the same placeholders as in `command` work."
    )
    command_readable: list[Path] = Field(
        default=[], description="Further folders that commands may read, e.g. an installation that is not on PATH."
    )
    command_sandbox: SandboxLevel | None = Field(
        default=None, description="Use this level for commands; default: the strongest that works here."
    )
    command_min_sandbox: SandboxLevel = Field(
        default=SandboxLevel.RLIMITS, description="Refuse to start commands below this level."
    )
    command_timeout_s: float = Field(default=1800.0, gt=0, description="Time limit of an agent's command.")
    command_memory_bytes: int = Field(
        default=4 << 30, ge=1 << 20, description="Memory that the processes of a command may hold together."
    )
    command_processes: int = Field(default=512, ge=1, description="Processes and threads of a command.")
    command_disk_bytes: int = Field(
        default=4 << 30, ge=1 << 20, description="Disk that a session's working folder and home may take together."
    )
    command_files: int = Field(default=200_000, ge=1, description="Files of a session's working folder and home.")
    command_output_bytes: int = Field(
        default=64 << 20, ge=1, description="A command that prints more than this is ended."
    )
    command_kept_bytes: int = Field(
        default=1 << 20, ge=2, description="Kept of what a command printed: the first half and the last half of this."
    )
