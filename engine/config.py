"""Settings of the embedded engine, validated when built."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class EngineConfig(BaseModel):
    """The embedded engine; most settings are flags of `weir engine` too."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: int = Field(default=1, ge=0, description="Number of engines that `weir up` starts, on consecutive ports.")
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
    num_threads: int = Field(
        default=1, ge=1, description="Threads of torch on a CPU; more than one slows small models down."
    )
    seed: int = Field(default=0, ge=0, description="Seed for requests without one.")
    weight_version: str | None = Field(
        default=None, description="Version of the first weights; unset: `version` in the model's manifest.json, else 0."
    )
    ledger: Path | None = Field(default=None, description="JSON Lines file to log every sampled token to.")
    incremental_streaming_output: bool = Field(
        default=False, description="Stream only the new output in each chunk, instead of all output so far."
    )
