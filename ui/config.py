"""Settings of the page: the section [ui] of weir.toml."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class UiConfig(BaseModel):
    """Where the page is served, and how fresh it is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(default=True, description="Whether `weir up` serves the page.")
    host: str = Field(
        default="127.0.0.1",
        description="Address to listen on; at any other than this machine's own, a browser asks for an access key "
        "(`weir key add`) as the password.",
    )
    port: int = Field(default=8800, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    stores: tuple[str, ...] = Field(
        default=(),
        description="Other stores, each a folder or s3://…, whose curves are shown over those of this one.",
    )
    refresh_s: float = Field(
        default=2.0,
        gt=0,
        description="Age in seconds at which a view of the store is renewed while somebody looks. Renewing takes at "
        "most a twentieth of the time, so a large store is renewed less often.",
    )
    threads: int = Field(
        default=2,
        ge=1,
        description="Pages that are computed at once, and questions in SQL that run beside them; others wait.",
    )
    nice: int = Field(
        default=10, ge=0, le=19, description="How far the page steps back from the processor for other processes."
    )
