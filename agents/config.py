"""Settings of the agents' side: where the proxy and the judge are, and how many sessions run how."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, SecretStr


class AgentsConfig(BaseModel):
    """How `weir run` tries tasks: which agent, how often, with which bounds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    proxy_url: str | None = Field(
        default=None,
        description="Root of the proxy, without /v1; `weir run` takes it from [proxy] where it is not set.",
    )
    control_key: SecretStr | None = Field(
        default=None, description="Credential of the proxy's control routes; taken from [proxy] where it is not set."
    )
    kernel_eval_url: str | None = Field(
        default=None, description="Root of the kernel-eval server; taken from [kernel_eval] where it is not set."
    )
    kernel_eval_key: SecretStr | None = Field(default=None, description="Credential of the kernel-eval server, if any.")
    agent: str = Field(
        default="weir.agents.kernel_agent:solve", description="Import path of the agent: module:function."
    )
    model: str = Field(default="weir", description="Model name that agents put into their requests.")
    samples: int = Field(default=8, ge=1, description="Sessions of a group: how often each task is tried.")
    concurrency: int = Field(default=16, ge=1, description="Sessions that run at the same time, over all groups.")
    turns: int = Field(default=2, ge=1, description="Answers that the agent may give before it must stop.")
    max_calls: int | None = Field(
        default=None, ge=1, description="Calls that a session may make in all; the proxy holds every agent to it."
    )
    max_output_tokens: int | None = Field(
        default=None, ge=1, description="Output tokens of a session in all, likewise."
    )
    max_seconds: float | None = Field(default=None, gt=0, description="How long a session may take, likewise.")
    max_tokens: int = Field(default=2048, ge=1, description="Bound on the tokens of one answer.")
    temperature: float = Field(default=1.0, ge=0.0, description="Sampling temperature; training wants 1.")
    call_timeout_s: float = Field(
        default=600.0, gt=0, description="Limit of one call; longer than the gate stays closed for an update."
    )
    call_retries: int = Field(default=6, ge=0, description="How often the OpenAI client repeats a call that failed.")
    control_timeout_s: float = Field(default=10.0, gt=0, description="Limit of one request to the control routes.")
    control_retries: int = Field(
        default=8, ge=0, description="Repeats of a control request that got no answer: a proxy may be starting again."
    )
    retry_wait_s: float = Field(
        default=0.25, ge=0, description="Wait before the first repeat; doubled each time, never above 5 s."
    )
    feedback_trials: int = Field(
        default=2, ge=1, description="Correctness trials behind the feedback; the trainer judges with its own number."
    )
    feedback_lines: int = Field(
        default=16, ge=1, description="Lines of the judge's feedback that the model sees; 1 leaves the traceback out."
    )
