"""Settings of the embedded engine, validated when built."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class EngineConfig(BaseModel):
    """The embedded engine; `weir engine` has most of these as flags."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: int = Field(default=1, ge=0, description="Embedded engines that `weir up` starts, on ports in a row.")
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=31000, ge=1, le=65535, description="Port of the first engine.")
    device: Literal["cpu", "cuda"] = Field(default="cpu", description="Where the model runs.")
    dtype: Literal["float32", "bfloat16"] = Field(default="float32", description="What weights and cache are held in.")
    max_running: int = Field(default=64, ge=1, description="Requests in the running batch; the others wait.")
    max_model_len: int | None = Field(
        default=None, ge=2, description="Prompt and output tokens of a request; none: what the model's config allows."
    )
    prefill_tokens: int = Field(
        default=8192, ge=1, description="Prompt tokens, padding included, that one step takes in (at least one prompt)."
    )
    num_threads: int = Field(default=1, ge=1, description="torch threads on a CPU; more than one slows small models.")
    seed: int = Field(default=0, ge=0, description="Seed of requests that bring none.")
    weight_version: str | None = Field(
        default=None, description="Name of the first weights; none: `version` in the model's manifest.json, else 0."
    )
    ledger: Path | None = Field(default=None, description="JSON Lines file that gets every sampled token.")
    incremental_streaming_output: bool = Field(
        default=False, description="Stream only what is new in each chunk instead of all output so far."
    )
