"""Rows of the catalog as values. JSON columns are plain Python data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A registered session; `status` is None while it runs."""

    session_id: str
    group_id: str
    metadata: dict[str, Any]
    key_hash: str | None
    created_us: int
    status: str | None
    info: dict[str, Any] | None
    finished_us: int | None
    active_us: int | None  # last noted activity, where sessions may end by idleness
    has_budget: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of a session; None: unlimited. Seconds count from its first call."""

    max_calls: int | None = None
    max_output_tokens: int | None = None
    max_seconds: float | None = None


NO_BUDGET = Budget()


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRow:
    """A session's budget and its use so far; `ended_by` names the limit that was reached first."""

    session_id: str
    max_calls: int | None
    max_output_tokens: int | None
    max_seconds: float | None
    calls: int
    output_tokens: int
    first_call_us: int | None
    ended_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessKeyRow:
    """A key that opens the proxy to agents; only its hash is stored. `revoked_us` is None while it is valid."""

    name: str
    key_hash: str
    created_us: int
    revoked_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A group that no round has claimed, with its finished sessions in the order of their registration."""

    group_id: str
    task: dict[str, Any] | None
    group_size: int | None
    created_us: int
    session_ids: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardRow:
    """A named number attached to a session, or to one of its calls."""

    session_id: str
    call_id: str | None
    name: str
    value: float
    source: str
    idempotency_key: str  # within the session


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRow:
    """One evaluation of one call; `result` is the judge's answer, unchanged."""

    call_id: str
    session_id: str
    group_id: str
    round_id: int | None
    content_hash: str
    compiled: bool
    correct: bool
    fault: str | None
    raw_reward: float
    result: dict[str, Any]
    created_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRow:
    """A round of training; `state` is "claimed" or "committed", `group_ids` are in the order of the claim."""

    round_id: int
    state: str
    manifest: dict[str, Any]
    group_ids: list[str]
    weight_version: int | None
    metrics: dict[str, Any] | None
    claimed_us: int
    committed_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRow:
    """A set of weights; `published_us` is None until engines serve it."""

    version: int
    path: str
    parent: int | None
    round_id: int | None
    manifest_sha256: str
    created_us: int
    published_us: int | None
    engines: list[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyRow:
    """A proxy process; the processes of one proxy share its `url`. `writer` is the name of its log.

    The other fields are the state of its recording when it was last seen; None where an earlier Weir did not report it.
    """

    proxy_id: str
    url: str
    writer: str
    started_us: int
    seen_us: int
    failed: int | None = None  # records that the log refused
    unrecorded: int | None = None  # answers given without a record
    waiting: int | None = None  # records that waited for the log
    failure: str | None = None  # why the log refuses records now


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The state of recording in a proxy process."""

    failed: int
    unrecorded: int
    waiting: int
    failure: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedSegment:
    """The counts of one compacted segment."""

    segment_id: str
    num_records: int
    num_bytes: int
    bytes_dropped: int
    frames_dropped: int
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRow:
    """One Parquet file of calls; `path` is relative to the store's root."""

    file_id: str
    path: str
    schema_version: int
    num_calls: int
    num_bytes: int
    created_us: int
    first_us: int | None = None  # the first and the last beginning or end of its calls; None: not noted
    last_us: int | None = None
    version_low: int | None = None  # the weight versions of its tokens; None: not noted, or there is none
    version_high: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroup:
    """The calls of one group in a file; `last_us` is when the latest of them finished."""

    group_id: str
    num_calls: int
    last_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSession:
    """A session with calls of a group in a file."""

    session_id: str
    group_id: str
