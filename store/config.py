"""The store's own settings: the section [store] of weir.toml."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

S3Url = Annotated[str, StringConstraints(pattern=r"^s3://[^/]+(/[^/]+)*/?$")]

ONE_REQUEST_BYTES = 256 * 2**20  # what is put into object storage in one request, under a condition


class StoreConfig(BaseModel):
    """Where records are kept, and what an acknowledgement means."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: S3Url | Path = Field(
        default=Path("weir-data"),
        union_mode="left_to_right",
        description="Folder of the store, made when it is missing; or s3://bucket/prefix, where machines share one.",
    )
    local_folder: Path = Field(
        default=Path("weir-data"),
        description="What this machine keeps for itself when root is in S3: its log, sockets, and copies of files.",
    )
    s3_endpoint: str | None = Field(
        default=None,
        description="URL of an S3-compatible server; none means Amazon's. Keys and region come from AWS_ACCESS_KEY_ID, "
        "AWS_SECRET_ACCESS_KEY and AWS_REGION in the environment.",
    )
    local_copies_bytes: int = Field(
        default=64 * 2**30,
        ge=0,
        description="When root is in S3: copies of shared files that this machine keeps. The least recently used go, "
        "and none that is being read.",
    )
    orphan_grace_s: float = Field(
        default=86_400.0,
        ge=0,
        description="When root is in S3: age at which `weir store gc` deletes objects that crashes left behind.",
    )
    durability: Literal["os", "fsync"] = Field(
        default="os",
        description="When a call counts as recorded: handed to the operating system (survives kill -9), "
        "or synced to the disk (survives a power cut).",
    )
    on_store_failure: Literal["refuse", "answer"] = Field(
        default="refuse",
        description="When a call cannot be recorded: refuse it, or answer it unrecorded and count the loss.",
    )
    segment_bytes: int = Field(default=64 * 2**20, ge=4096, description="Size at which a log segment is sealed.")
    seal_age_s: float = Field(default=60.0, gt=0, description="Age at which a log segment with records is sealed.")
    queue_records: int = Field(default=1024, ge=1, description="Records that may wait for the log; more are refused.")
    segment_grace_s: float = Field(
        default=300.0, ge=0, description="How long a compacted segment is kept for readers with an older snapshot."
    )
    compact_every_s: float = Field(default=30.0, ge=1, description="How often `weir up` compacts the log.")
    retention_days: float | None = Field(
        default=None,
        gt=0,
        description="Age at which groups leave the store, with their calls, sessions and rewards; none: never. Groups "
        "that a round may still claim have a setting of their own.",
    )
    retention_bytes: int | None = Field(
        default=None,
        ge=0,
        description="Size of all Parquet files above which the oldest groups that nothing needs leave the store, until "
        "a tenth is free; none: no limit.",
    )
    retention_unclaimed_days: float | None = Field(
        default=None,
        gt=0,
        description="Age at which groups with registered sessions leave the store although no round has taken them; "
        "none: never.",
    )
    retention_rounds: int = Field(
        default=4,
        ge=0,
        description="Groups of so many latest rounds stay, so that `weir round --replay` can repeat them.",
    )
    catalog_url: str | None = Field(
        default=None,
        pattern=r"^(sqlite|postgresql)(\+\w+)?://",
        description="URL of the catalog: postgresql://user@host/database where several machines share it; "
        "none means catalog.sqlite in the store's folder.",
    )
    query_timeout_s: float = Field(default=300.0, gt=0, description="A question in SQL is stopped after so long.")
    query_memory_mb: int = Field(default=4096, ge=16, description="Memory that a connection for SQL may use.")

    @model_validator(mode="after")
    def _segments_fit_into_objects(self) -> StoreConfig:
        if isinstance(self.root, str) and self.segment_bytes > ONE_REQUEST_BYTES:
            raise ValueError(
                f"segment_bytes = {self.segment_bytes} is more than S3 takes under a condition, {ONE_REQUEST_BYTES}: "
                "lower it"
            )
        return self

    def at(self, root: str | None) -> StoreConfig:
        """These settings for the store at another root; none: at their own."""
        return (
            self if root is None else StoreConfig.model_validate(self.model_dump(exclude_unset=True) | {"root": root})
        )

    @property
    def folder(self) -> Path:
        """What the store has on this machine: all of it, or its own part where the root is in S3."""
        return self.root if isinstance(self.root, Path) else self.local_folder

    @property
    def log_dir(self) -> Path:
        """Where each writer has a folder of segments."""
        return self.folder / "log"

    @property
    def data_dir(self) -> Path:
        """Where compacted calls lie as Parquet."""
        return self.folder / "data"

    @property
    def url(self) -> str:
        """The catalog's URL, with the default filled in."""
        return self.catalog_url or f"sqlite:///{self.folder.absolute() / 'catalog.sqlite'}"
