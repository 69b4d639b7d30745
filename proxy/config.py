"""The proxy's settings: section [proxy] of weir.toml."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from weir.proxy.sampling_config import SamplingConfig


class ProxyConfig(BaseModel):
    """Listening, rendering, time limits and refusals of the proxy."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field(default="127.0.0.1", description="Address the proxy listens on.")
    port: int = Field(default=8700, ge=0, le=65535, description="Port the proxy listens on; 0 takes a free one.")
    workers: int = Field(
        default=1, ge=1, le=256, description="Processes that share the port; each has a log and a memory of its own."
    )
    public_url: str | None = Field(
        default=None, description="Base URL given to registered sessions; unset: the address at which they registered."
    )
    upstream_url: str | None = Field(
        default=None, description="URL of the router in front of the engines; unset: the one of section [router]."
    )
    level: Literal["auto", "tokens", "passthrough", "logprobs", "text"] = Field(
        default="tokens",
        description="Capture level: tokens (the proxy renders, engines get ids), passthrough (the engine "
        "renders and returns its ids), logprobs, text; a level that the upstream cannot give ends the start; auto "
        "takes the best.",
    )
    below_level: Literal["refuse", "record"] = Field(
        default="refuse",
        description="Calls on a route that gives less than the level: refuse them, or record at the route's level.",
    )
    upstream_api_key: str | None = Field(
        default=None,
        repr=False,
        description="Key that is sent upstream instead of the agent's own, at the levels below tokens; never recorded.",
    )
    assumed_version: int | None = Field(
        default=None,
        ge=0,
        lt=2**31,
        description="Weight version of engines that report none (vLLM), or a name that is no integer (SGLang's own "
        'default is "default"); recorded as assumed. Unset: such calls are recorded and never trained on.',
    )
    probe_limit_s: float = Field(
        default=120.0, gt=0, description="How long the start waits for an upstream that does not answer, in seconds."
    )
    control_key: str | None = Field(
        default=None,
        min_length=16,
        description="Bearer key of the control routes; unset: a key file <store root>/control.key is made and used.",
    )
    model_aliases: tuple[str, ...] = Field(
        default=(), description="Further model names that agents may ask for; they get the served model."
    )
    renderer: str = Field(
        default="auto",
        description="Renderer that turns messages into token ids, by its name in the `renderers` library; "
        "auto: chosen by the model's architecture.",
    )
    thinking: bool | None = Field(
        default=None, description="Turn the model's thinking on or off where its renderer can; unset: its own default."
    )
    keep_reasoning: bool = Field(
        default=True,
        description="Keep the reasoning of earlier turns in the prompt, so that turns are exact prefixes of the next; "
        "false: drop it where the model's chat template drops it.",
    )
    tool_prompt: Literal["refuse", "hermes"] = Field(
        default="refuse",
        description="Tools that the model's chat template would drop, with their calls and results: refuse such "
        "requests, or write them as text in the form of Hermes.",
    )
    drop_builtin_tools: tuple[str, ...] = Field(
        default=(),
        description="Types of built-in tools, which a host would run itself, that are left out of prompts and named in "
        "the record's ignored_fields; requests with others are refused. web_search stands for its dated forms too.",
    )
    images: Literal["refuse", "placeholder"] = Field(
        default="refuse",
        description="Images in messages and results of tools, at level tokens, whose prompts are text: refuse such "
        "requests, or put a text in their place and name them in the record's ignored_fields.",
    )
    max_model_len: int | None = Field(
        default=None,
        ge=2,
        description="Largest context length in tokens; unset: max_position_embeddings of the model. Never more than an "
        "engine says that it takes.",
    )
    max_request_bytes: int = Field(
        default=64 * 2**20, ge=1024, description="Largest request body that is read; larger ones get a 413."
    )
    body_timeout_s: float = Field(
        default=60.0, gt=0, description="How long a request's body may take to arrive, in seconds; then a 408."
    )
    max_concurrent: int = Field(
        default=8192,
        ge=1,
        description="Most calls in flight upstream at the same time; a lower limit is learned from what it refuses.",
    )
    max_queued: int = Field(
        default=8192,
        ge=0,
        description="Requests that wait for their turn or at the gate, beside max_concurrent ones; more get 503.",
    )
    access_keys: Literal["auto", "required", "off"] = Field(
        default="auto",
        description="Whether agents must show a key, a session's or one of `weir key add`; auto: where the proxy "
        "listens on an address that other machines can reach.",
    )
    serve_keys: tuple[str, ...] = Field(
        default=(),
        description="Names of access keys whose calls have the tag serve: a product's, which `weir train` does not "
        "hold.",
    )
    cors_origins: tuple[str, ...] = Field(
        default=(),
        description="Origins of web pages whose scripts may call agents' routes (https://chat.example.org); * is any.",
    )
    finished_sessions: Literal["refuse", "allow"] = Field(
        default="refuse", description="Whether calls to a finished session are refused."
    )
    idle_finish_s: float | None = Field(
        default=None,
        ge=1,
        description="Time without a call in flight after which a registered session is finished as done, in seconds; "
        "unset: only whoever registered it finishes it.",
    )
    keepalive_s: float = Field(
        default=15.0, gt=0, description="Silence after which a waiting client is sent a keepalive, in seconds."
    )
    stream_interval_ms: float = Field(
        default=40.0,
        ge=0,
        description="Tokens of a stream that come within this time go to the agent together, in milliseconds; "
        "the first go at once. 0: each as it comes, at about three times the CPU.",
    )
    gate_limit_s: float = Field(
        default=600.0,
        gt=0,
        description="How long the gate may stay closed before it opens again by itself, in seconds.",
    )
    drain_limit_s: float = Field(
        default=60.0, gt=0, description="How long a draining gate waits for calls in flight, in seconds."
    )
    abort_retries: int = Field(
        default=5,
        ge=0,
        description="How often a call that was aborted while the gate was open, without a new token, is resumed.",
    )
    refused_limit_s: float = Field(
        default=30.0,
        ge=0,
        description="How long a call is retried or waits while no engine takes any (connection refused, 503).",
    )
    lost_retries: int = Field(
        default=3, ge=0, description="How often a call is retried when its engine died after taking it."
    )
    retry_backoff_s: float = Field(
        default=0.1, ge=0, description="Pause before the first retry of a call, in seconds; it doubles each time."
    )
    engine_check_s: float = Field(
        default=1.0,
        gt=0,
        description="How often the engines behind the router are checked, in seconds: a dead one is taken out of "
        "rotation, and returns once it answers with the current weights.",
    )
    connect_timeout_s: float = Field(default=5.0, gt=0, description="Limit on connecting to the router, in seconds.")
    answer_timeout_s: float = Field(
        default=1800.0, gt=0, description="Limit on one answer of an engine, from request to last token, in seconds."
    )
    stitch_memory_bytes: int = Field(
        default=256 * 2**20, ge=2**20, description="Memory for the token ids of recent calls that later turns continue."
    )
    response_memory_bytes: int = Field(
        default=64 * 2**20, ge=2**20, description="Memory for recent responses that later ones name by their id."
    )
    retry_grace_s: float = Field(
        default=1.0,
        ge=0,
        description="How long a call continues after its client left, if that client retries, in seconds.",
    )
    shutdown_limit_s: float = Field(
        default=30.0, gt=0, description="How long calls in flight may take to finish after SIGTERM, in seconds."
    )
    shutdown_notice_s: float = Field(
        default=0.0,
        ge=0,
        description="How long calls are still accepted after SIGTERM while /readyz says 503, for load balancers.",
    )
    prompt_logprobs: bool = Field(
        default=False,
        description="Record the logprobs of every call's prompt, at level tokens; the engine then computes whole "
        "prompts, without its prefix cache. For single calls: the header x-weir-prompt-logprobs.",
    )
    sampling_masks: bool = Field(
        default=False,
        description="Ask SGLang (return_sampling_mask) for the logprobs of truncated calls after truncation, where "
        "top_k is 2 to 1024; the router must pass the field on, as smg does. The embedded engine gives them unasked.",
    )
    adapter_name: str | None = Field(
        default=None,
        min_length=1,
        description="Calls name this LoRA adapter, which SGLang's engines serve beside their base once a version was "
        "published with publish.form = adapter; level tokens. Unset: calls name none.",
    )
    record_routed_experts: bool = Field(
        default=False,
        description="Record the experts that each token went to, at level tokens, for trainer.routing_replay. SGLang "
        "needs --enable-return-routed-experts. Calls then go past the router, which would drop the question.",
    )
    sampling: SamplingConfig = Field(
        default=SamplingConfig(), description="Sampling that replaces what agents ask for, see [proxy.sampling]."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Level of the proxy's own log; info includes one line for every call."
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="Form of the proxy's own log: text, or one JSON object a line."
    )
    log_prompts: bool = Field(
        default=False, description="Write prompts and answers to the proxy's own log, for debugging."
    )
