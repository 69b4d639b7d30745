"""Settings of the engines: the embedded one, and the SGLang servers that `weir up` starts. Validated when built."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

_EMBEDDED_ONLY = ("ledger", "num_threads", "prefill_ms", "prefill_tokens")
_SGLANG_ONLY = ("python", "args", "env")


class EngineConfig(BaseModel):
    """The engines; most settings of the embedded one are flags of `weir engine` too."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["embedded", "sglang"] = Field(
        default="embedded", description="What `weir up` starts: Weir's embedded engine, or SGLang servers."
    )
    count: int = Field(
        default=1, ge=0, description="Number of engines that `weir up` starts, on consecutive ports; 0: none."
    )
    urls: tuple[str, ...] = Field(
        default=(), description="Engines that run elsewhere, behind the same router; rounds publish to them too."
    )
    python: Path | None = Field(
        default=None,
        description="Python of the environment that has SGLang, or that environment's folder; unset: Weir's own.",
    )
    args: tuple[str, ...] = Field(default=(), description="Further flags of SGLang's server, after those of Weir.")
    env: dict[str, str] = Field(default={}, description="Environment variables of SGLang's servers.")
    start_limit_s: float = Field(
        default=1800.0, gt=0, description="How long `weir up` waits until its servers are ready, in seconds."
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=31000, ge=1, le=65535, description="Port of the first engine.")
    device: Literal["cpu", "cuda"] = Field(default="cpu", description="Device of the model.")
    dtype: Literal["float32", "bfloat16"] = Field(default="float32", description="Precision of weights and KV cache.")
    max_running: int = Field(default=64, ge=1, description="Largest running batch, in requests; others wait.")
    max_model_len: int | None = Field(
        default=None,
        ge=2,
        description="Largest number of prompt and output tokens of a request; unset: the model's limit.",
    )
    prefill_tokens: int = Field(
        default=8192, ge=1, description="Prompt tokens, padding included, in one prefill step (at least one prompt)."
    )
    prefill_ms: float = Field(
        default=200.0,
        gt=0,
        description="How long a prefill step may hold up running requests, in milliseconds; longer ones go in pieces.",
    )
    prefix_tokens: int | None = Field(
        default=None,
        ge=0,
        description="Tokens of finished requests whose keys and values are kept for prompts that begin alike; 0: none; "
        "unset: as many as one request may have where they take at most 2 GiB, and at least 8192.",
    )
    num_threads: int = Field(
        default=1, ge=1, description="Threads of torch on a CPU; more than one slows small models down."
    )
    seed: int = Field(default=0, ge=0, description="Seed for requests without one.")
    weight_version: str | None = Field(
        default=None, description="Version of the first weights; unset: `version` in the model's manifest.json, else 0."
    )
    ledger: Path | None = Field(
        default=None,
        description="JSON Lines file to log every sampled token to; several engines add their numbers to its name.",
    )
    incremental_streaming_output: bool = Field(
        default=False, description="Stream only the new output in each chunk, instead of all output so far."
    )

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        """Refuse settings that the chosen kind does not have."""
        others, kind = (_EMBEDDED_ONLY, "embedded") if self.kind == "sglang" else (_SGLANG_ONLY, "sglang")
        if wrong := [name for name in others if name in self.model_fields_set]:
            raise ValueError(f"{', '.join(wrong)}: only with kind = {kind!r}, and it is {self.kind!r}")
        return self
