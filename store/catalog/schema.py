"""The catalog's tables, as the code uses them. The revisions in migrations/versions create them; a test compares both.

Times are unix microseconds. Keys carry invariants: a group is in `round_groups` once, so it is consumed once; a segment
is in `file_sources` once, so it is compacted once; a generation is published once, so that of two concurrent changes of
the files one is refused. `one_open_round` allows one round at a time that is claimed and not committed.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    text,
)

metadata = MetaData()

segments = Table(
    "segments",
    metadata,
    Column("segment_id", String, primary_key=True),
    Column("num_records", Integer, nullable=False),
    Column("num_bytes", BigInteger, nullable=False),
    Column("bytes_dropped", BigInteger, nullable=False),
    Column("frames_dropped", BigInteger),  # NULL: compacted by an earlier Weir that did not count
    Column("reason", String),
    Column("compacted_us", BigInteger, nullable=False),
    Column("deleted_us", BigInteger),
    Column("generation", BigInteger),  # NULL: compacted by an earlier Weir that did not count
)

files = Table(
    "files",
    metadata,
    Column("file_id", String, primary_key=True),
    Column("path", String, nullable=False),  # relative to the store's root
    Column("schema_version", Integer, nullable=False),
    Column("num_calls", Integer, nullable=False),
    Column("num_bytes", BigInteger, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("first_us", BigInteger),  # the first and the last beginning or end of its calls; NULL: not noted
    Column("last_us", BigInteger),
    Column("version_low", BigInteger),  # the weight versions of its tokens; NULL: not noted, or there is none
    Column("version_high", BigInteger),
)

file_sources = Table(
    "file_sources",
    metadata,
    Column("segment_id", String, ForeignKey("segments.segment_id"), primary_key=True),
    Column("file_id", String, ForeignKey("files.file_id"), index=True),  # NULL: the segment held no calls
)

# Finds compacted calls by the digest of the history that they end.
call_ends = Table(
    "call_ends",
    metadata,
    Column("call_id", String, primary_key=True),
    Column("digest", LargeBinary, nullable=False, index=True),
    Column("file_id", String, ForeignKey("files.file_id"), nullable=False, index=True),
)

# The groups of each file; a file that an earlier Weir wrote has no rows here.
file_groups = Table(
    "file_groups",
    metadata,
    Column("group_id", String, primary_key=True),
    Column("file_id", String, ForeignKey("files.file_id"), primary_key=True, index=True),
    Column("num_calls", Integer, nullable=False),
    Column("last_us", BigInteger, nullable=False),  # when the latest of them finished
    Column("age_us", BigInteger),  # age of the store when the latest of them entered a file; NULL: not counted
)

# The sessions of each file, with the groups of their calls in it; a file that an earlier Weir wrote has no rows here
# until a compaction.
file_sessions = Table(
    "file_sessions",
    metadata,
    Column("session_id", String, primary_key=True),
    Column("group_id", String, primary_key=True),
    Column("file_id", String, ForeignKey("files.file_id"), primary_key=True, index=True),
)

# One row: the age of the store, and when it was last updated.
store_age = Table(
    "store_age",
    metadata,
    Column("row_id", Integer, primary_key=True, autoincrement=False),
    Column("age_us", BigInteger, nullable=False),
    Column("seen_us", BigInteger, nullable=False),
)

# Groups that retention removed: their calls until then never enter the store again.
retired_groups = Table(
    "retired_groups",
    metadata,
    Column("group_id", String, primary_key=True),
    Column("retired_us", BigInteger, nullable=False),
)

# Files that a merge, retention or a repair removed from the store, until they are deleted.
replaced_files = Table(
    "replaced_files",
    metadata,
    Column("file_id", String, primary_key=True),
    Column("path", String, nullable=False),
    Column("num_bytes", BigInteger, nullable=False),
    Column("replaced_us", BigInteger, nullable=False),
    Column("generation", BigInteger, nullable=False),
)

# Every change of the store's contents has a generation number.
publications = Table(
    "publications",
    metadata,
    Column("generation", BigInteger, primary_key=True, autoincrement=False),
    Column("published_us", BigInteger, nullable=False),
)

# Live readers, and the generation that each reads.
snapshots = Table(
    "snapshots",
    metadata,
    Column("snapshot_id", String, primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("holder", String, nullable=False),
    Column("seen_us", BigInteger, nullable=False),
    Column("doubted_us", BigInteger),  # since when it has been silent for too long; NULL: it is not
)

# Places in the tree that changed after a call was compacted, because its parent was recorded late.
relinks = Table(
    "relinks",
    metadata,
    Column("call_id", String, primary_key=True),
    Column("parent_call", String),
    Column("prefix_len", Integer, nullable=False),
    Column("depth", Integer, nullable=False),
    Column("root_call", String, nullable=False),
    Column("role", String, nullable=False),
    Column("twin_of", String),
    Column("ambiguous", Boolean, nullable=False),
)

groups = Table(
    "groups",
    metadata,
    Column("group_id", String, primary_key=True),
    Column("task", JSON(none_as_null=True)),
    Column("group_size", Integer),
    Column("created_us", BigInteger, nullable=False),
)

sessions = Table(
    "sessions",
    metadata,
    Column("session_id", String, primary_key=True),
    Column("group_id", String, ForeignKey("groups.group_id"), nullable=False, index=True),
    Column("metadata", JSON, nullable=False),
    Column("key_hash", String, unique=True),
    Column("created_us", BigInteger, nullable=False, index=True),
    Column("status", String),  # NULL while it runs
    Column("info", JSON(none_as_null=True)),
    Column("finished_us", BigInteger, index=True),
    Column("active_us", BigInteger),  # noted at times, where sessions may end by idleness
)

# Limits of sessions, and the use by their calls so far.
budgets = Table(
    "budgets",
    metadata,
    Column("session_id", String, ForeignKey("sessions.session_id"), primary_key=True),
    Column("max_calls", BigInteger),
    Column("max_output_tokens", BigInteger),
    Column("max_seconds", Float),
    Column("calls", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("first_call_us", BigInteger),
    Column("ended_by", String),  # the limit that first cut an answer or refused a call
)

access_keys = Table(
    "access_keys",
    metadata,
    Column("name", String, primary_key=True),
    Column("key_hash", String, nullable=False, unique=True),
    Column("created_us", BigInteger, nullable=False),
    Column("revoked_us", BigInteger),
)

# Requests of agents that a proxy refused; equal ones are one row.
refusals = Table(
    "refusals",
    metadata,
    Column("refusal_id", String, primary_key=True),
    Column("first_us", BigInteger, nullable=False),
    Column("last_us", BigInteger, nullable=False, index=True),
    Column("num_requests", BigInteger, nullable=False),
    Column("session_id", String),
    Column("key_name", String),
    Column("method", String, nullable=False),
    Column("route", String, nullable=False),
    Column("status", Integer, nullable=False),
    Column("code", String, nullable=False),
    Column("field", String),
    Column("message", String, nullable=False),
    Column("body_digest", String),
)

# Calls that went upstream and have no record.
lost_calls = Table(
    "lost_calls",
    metadata,
    Column("call_id", String, primary_key=True),
    Column("session_id", String, nullable=False, index=True),
    Column("group_id", String, nullable=False, index=True),
    Column("started_us", BigInteger, nullable=False),
    Column("writer", String, nullable=False),
    Column("reason", String, nullable=False),
    Column("noted_us", BigInteger, nullable=False),
)

# Groups that a consumer reads and has not acknowledged: they stay.
pins = Table(
    "pins",
    metadata,
    Column("name", String, primary_key=True),
    Column("holder", String, nullable=False),
    Column("pinned_us", BigInteger, nullable=False),
)

pinned_groups = Table(
    "pinned_groups",
    metadata,
    Column("group_id", String, primary_key=True),
    Column("name", String, ForeignKey("pins.name"), primary_key=True, index=True),
)

# Responses that agents deleted; their calls stay recorded.
deleted_responses = Table(
    "deleted_responses",
    metadata,
    Column("call_id", String, primary_key=True),
    Column("deleted_us", BigInteger, nullable=False),
)

# What people did on the page; the row is there before anything is done.
actions = Table(
    "actions",
    metadata,
    Column("action_id", String, primary_key=True),
    Column("kind", String, nullable=False),
    Column("subject", String, nullable=False),  # of a session, group, file or version: its name
    Column("given", JSON(none_as_null=True), nullable=False),
    Column("note", String, nullable=False),
    Column("person", String, nullable=False),  # the name given at the login
    Column("address", String, nullable=False),
    Column("asked_us", BigInteger, nullable=False, index=True),
    Column("ended_us", BigInteger),
    Column("outcome", String),  # done or failed; NULL: under way, or its server was killed
    Column("message", String),
)

# Engines and training slots under a controller, and what each does now.
members = Table(
    "members",
    metadata,
    Column("name", String, primary_key=True),
    Column("url", String),  # NULL: it only trains
    Column("tags", JSON(none_as_null=True), nullable=False),
    Column("kind", String, nullable=False),
    Column("memory_gb", Float),
    Column("train_priority", Float, nullable=False),
    Column("phase", String, nullable=False),
    Column("weight_version", BigInteger),
    Column("note", String),  # why it is lost
    Column("since_us", BigInteger, nullable=False),
    Column("seen_us", BigInteger, nullable=False),
)

# What each member did, from when to when, and the event that led to it.
phases = Table(
    "phases",
    metadata,
    Column("phase_id", Integer, primary_key=True, autoincrement=True),
    Column("member", String, nullable=False),
    Column("phase", String, nullable=False),
    Column("event", String, nullable=False),
    Column("weight_version", BigInteger),
    Column("began_us", BigInteger, nullable=False, index=True),
    Column("ended_us", BigInteger),
    Column("seconds", JSON(none_as_null=True)),  # by activity; NULL: it continues, or its controller was killed
)

rewards = Table(
    "rewards",
    metadata,
    Column("session_id", String, ForeignKey("sessions.session_id"), primary_key=True),
    Column("idempotency_key", String, primary_key=True),
    Column("call_id", String),
    Column("name", String, nullable=False),
    Column("value", Float, nullable=False),
    Column("source", String, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("call_id", String, primary_key=True),
    Column("content_hash", String, primary_key=True),
    Column("session_id", String, nullable=False, index=True),
    Column("group_id", String, nullable=False, index=True),
    Column("round_id", BigInteger),
    Column("compiled", Boolean, nullable=False),
    Column("correct", Boolean, nullable=False),
    Column("fault", String),
    Column("raw_reward", Float, nullable=False),
    Column("result", JSON, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)

rounds = Table(
    "rounds",
    metadata,
    Column("round_id", BigInteger, primary_key=True, autoincrement=False),
    Column("state", String, nullable=False),  # claimed, committed
    Column("manifest", JSON, nullable=False),
    Column("weight_version", BigInteger),
    Column("metrics", JSON(none_as_null=True)),
    Column("claimed_us", BigInteger, nullable=False),
    Column("committed_us", BigInteger),
    Index(
        "one_open_round",
        "state",
        unique=True,
        sqlite_where=text("state = 'claimed'"),
        postgresql_where=text("state = 'claimed'"),
    ),
)

round_groups = Table(
    "round_groups",
    metadata,
    Column("group_id", String, ForeignKey("groups.group_id"), primary_key=True),
    Column("round_id", BigInteger, ForeignKey("rounds.round_id"), nullable=False, index=True),
    Column("position", Integer, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("name", String, primary_key=True),
    Column("holder", String, nullable=False),
    Column("token", BigInteger, nullable=False),  # grows each time the lease is taken
    Column("expires_us", BigInteger, nullable=False),
)

# Segments in object storage, until they are in a file and old enough to be deleted.
shared_segments = Table(
    "shared_segments",
    metadata,
    Column("segment_id", String, primary_key=True),
    Column("num_bytes", BigInteger, nullable=False),
    Column("shared_us", BigInteger, nullable=False),
)

# Log writers of other machines; calls acknowledged before `shared_us` can be read everywhere.
log_writers = Table(
    "log_writers",
    metadata,
    Column("writer", String, primary_key=True),
    Column("shared_us", BigInteger, nullable=False),
    Column("seen_us", BigInteger, nullable=False),
)

versions = Table(
    "versions",
    metadata,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("path", String, nullable=False),
    Column("parent", BigInteger),
    Column("round_id", BigInteger),
    Column("manifest_sha256", String, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("published_us", BigInteger),
    Column("engines", JSON(none_as_null=True)),
)

proxies = Table(
    "proxies",
    metadata,
    Column("proxy_id", String, primary_key=True),
    Column("url", String, nullable=False),
    Column("writer", String, nullable=False),
    Column("started_us", BigInteger, nullable=False),
    Column("seen_us", BigInteger, nullable=False),
    Column("failed", BigInteger),
    Column("unrecorded", BigInteger),
    Column("waiting", BigInteger),
    Column("failure", String),
)


# Engines that gave their memory back to a trainer on the same devices, from before they are asked until they serve.
asleep_engines = Table(
    "asleep_engines",
    metadata,
    Column("url", String, primary_key=True),
    Column("member", String, nullable=False),
    Column("process", String),
    Column("model_path", String, nullable=False),
    Column("weight_version", String),
    Column("held_until_us", BigInteger, nullable=False),
)

# Process groups that engines which do not name theirs were asked to join, until they have left.
weight_groups = Table(
    "weight_groups",
    metadata,
    Column("url", String, primary_key=True),
    Column("group_name", String, primary_key=True),
)

# Each time that such devices changed hands, and what it cost.
switches = Table(
    "switches",
    metadata,
    Column("switch_id", Integer, primary_key=True),
    Column("member", String, nullable=False),
    Column("side", String, nullable=False),
    Column("began_us", BigInteger, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("steps", JSON(none_as_null=True), nullable=False),
    Column("freed_bytes", BigInteger),
    Column("error", String),
)
