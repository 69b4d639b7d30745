"""Settings of the store: the section [store] of weir.toml."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

S3Url = Annotated[str, StringConstraints(pattern=r"^s3://[^/]+(/[^/]+)*/?$")]

ONE_REQUEST_BYTES = 256 * 2**20  # largest object that one conditional request puts


class StoreConfig(BaseModel):
    """Where records are kept, how durably, and for how long."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: S3Url | Path = Field(
        default=Path("weir-data"),
        union_mode="left_to_right",
        description="Folder of the store, created if missing; or s3://bucket/prefix, shared by several machines.",
    )
    local_folder: Path = Field(
        default=Path("weir-data"),
        description="Folder of this machine where root is in S3: its log, sockets, and copies of files.",
    )
    s3_endpoint: str | None = Field(
        default=None,
        description="URL of an S3-compatible server; unset means Amazon's. Keys and region come from "
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION in the environment.",
    )
    local_copies_bytes: int = Field(
        default=64 * 2**30,
        ge=0,
        description="Where root is in S3: size of the copies of shared files, and of parts of them, on this machine. "
        "The least recently used are deleted, except while they are read.",
    )
    orphan_grace_s: float = Field(
        default=86_400.0,
        ge=0,
        description="Where root is in S3: age at which `weir store gc` deletes objects that crashes left behind.",
    )
    durability: Literal["os", "fsync"] = Field(
        default="os",
        description="When a call counts as recorded: written to the operating system (survives kill -9), "
        "or synced to the disk (survives a power cut).",
    )
    on_store_failure: Literal["refuse", "answer"] = Field(
        default="refuse",
        description="If a call cannot be recorded: refuse it, or answer it unrecorded and count the loss.",
    )
    segment_bytes: int = Field(default=64 * 2**20, ge=4096, description="Size at which a log segment is sealed.")
    seal_age_s: float = Field(default=60.0, gt=0, description="Age at which a log segment with records is sealed.")
    queue_records: int = Field(
        default=1024, ge=1, description="Records that may wait for the log; further calls are refused."
    )
    segment_grace_s: float = Field(
        default=300.0, ge=0, description="How long a compacted segment is kept for readers with older snapshots."
    )
    compact_every_s: float = Field(default=30.0, ge=1, description="How often `weir up` compacts the log.")
    retention_days: float | None = Field(
        default=None,
        gt=0,
        description="Age at which groups are deleted, with their calls, sessions and rewards; unset: never. For groups "
        "that a round may still claim, see retention_unclaimed_days.",
    )
    retention_bytes: int | None = Field(
        default=None,
        ge=0,
        description="Size of all Parquet files above which the oldest groups that nothing needs are deleted, until a "
        "tenth is free; unset: no limit.",
    )
    retention_unclaimed_days: float | None = Field(
        default=None,
        gt=0,
        description="Age at which groups with registered sessions are deleted although no round has claimed them; "
        "unset: never.",
    )
    retention_rounds: int = Field(
        default=4,
        ge=0,
        description="Number of latest rounds whose groups are kept, so that `weir round --replay` can repeat them.",
    )
    catalog_url: str | None = Field(
        default=None,
        pattern=r"^(sqlite|postgresql)(\+\w+)?://",
        description="URL of the catalog: postgresql://user@host/database where several machines share it; "
        "unset means catalog.sqlite in the store's folder.",
    )
    query_timeout_s: float = Field(default=300.0, gt=0, description="Time limit of one SQL query.")
    query_memory_mb: int = Field(default=4096, ge=16, description="Memory limit of a connection for SQL.")
    query_spill_mb: int = Field(
        default=16_384,
        ge=0,
        description="What queries of a connection for SQL may write to the folder spill below the store's when they "
        "need more memory, and never more than half of the disk's free space; 0: nothing.",
    )

    @model_validator(mode="after")
    def _segments_fit_into_objects(self) -> StoreConfig:
        if isinstance(self.root, str) and self.segment_bytes > ONE_REQUEST_BYTES:
            raise ValueError(
                f"segment_bytes = {self.segment_bytes} exceeds the limit of a conditional put to S3, "
                f"{ONE_REQUEST_BYTES}: lower it"
            )
        return self

    def at(self, root: str | None) -> StoreConfig:
        """These settings for the store at another root; None: unchanged."""
        return (
            self if root is None else StoreConfig.model_validate(self.model_dump(exclude_unset=True) | {"root": root})
        )

    @property
    def folder(self) -> Path:
        """The folder of the store on this machine: the root, or `local_folder` where the root is in S3."""
        return self.root if isinstance(self.root, Path) else self.local_folder

    @property
    def log_dir(self) -> Path:
        """The folder with one subfolder of segments per log writer."""
        return self.folder / "log"

    @property
    def data_dir(self) -> Path:
        """The folder of compacted calls in Parquet."""
        return self.folder / "data"

    @property
    def url(self) -> str:
        """The catalog's URL, with the default filled in."""
        return self.catalog_url or f"sqlite:///{self.folder.absolute() / 'catalog.sqlite'}"
