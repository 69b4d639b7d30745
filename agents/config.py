"""Settings of `weir run`: servers, agent, number of sessions and their limits."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, SecretStr


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
