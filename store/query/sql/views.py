"""All SQL views, in the order of their dependencies. The schema `stored` holds their sources."""

from __future__ import annotations

import duckdb

from weir.store.query.sql.branches import BRANCH_CALLS, BRANCHES
from weir.store.query.sql.calls import CALLS, TOKENS
from weir.store.query.sql.evaluations import EVALUATIONS, FAST_P, PASS_AT_K, SOLUTIONS, SPEEDUPS
from weir.store.query.sql.labels import LABELS
from weir.store.query.sql.messages import MESSAGES
from weir.store.query.sql.sessions import GROUPS, REWARDS, SESSIONS
from weir.store.query.sql.trajectories import TRAJECTORIES

_ROUNDS = """
WITH members AS (
    SELECT round_id, list(group_id ORDER BY position) AS group_ids FROM stored.round_groups GROUP BY round_id
)
SELECT
    round_id, r.state, r.weight_version,
    coalesce(len(m.group_ids), 0) AS num_groups,
    make_timestamp(r.claimed_us) AS claimed_at,
    make_timestamp(r.committed_us) AS committed_at,
    (r.committed_us - r.claimed_us) / 1e6 AS duration_s,
    m.group_ids, r.manifest, r.metrics
FROM stored.rounds r LEFT JOIN members m USING (round_id)
"""

_ROUND_METRICS = """
SELECT
    r.round_id, r.weight_version,
    replace(substr(m.fullkey, 3), '"', '') AS name,
    CAST(m.atom AS DOUBLE) AS value
FROM stored.rounds r, json_tree(r.metrics) m
WHERE m.type IN ('DOUBLE', 'BIGINT', 'UBIGINT')
"""

_VERSIONS = """
SELECT
    version, parent, round_id, path, manifest_sha256,
    make_timestamp(created_us) AS created_at,
    make_timestamp(published_us) AS published_at,
    engines
FROM stored.versions
"""

_REFUSALS = """
SELECT
    make_timestamp(first_us) AS first_at, make_timestamp(last_us) AS last_at, num_requests,
    session_id, key_name AS "key", method, route, status, code, field, message, body_digest
FROM stored.refusals
"""

_LOST_CALLS = """
SELECT
    call_id, session_id, group_id, make_timestamp(started_us) AS started_at, make_timestamp(noted_us) AS noted_at,
    reason, writer
FROM stored.lost_calls
"""

_ACTIONS = """
SELECT
    action_id, kind, subject, given, note, person, address,
    make_timestamp(asked_us) AS asked_at, make_timestamp(ended_us) AS ended_at, outcome, message
FROM stored.actions
"""

_MEMBERS = """
SELECT
    name, url, tags, kind, memory_gb, train_priority, phase, weight_version, note,
    make_timestamp(since_us) AS since, make_timestamp(seen_us) AS seen_at
FROM stored.members
"""

_PHASES = """
SELECT
    phase_id, member, phase, event, weight_version,
    make_timestamp(began_us) AS began_at, make_timestamp(ended_us) AS ended_at,
    (ended_us - began_us) / 1e6 AS duration_s,
    seconds
FROM stored.phases
"""

VIEWS: dict[str, str] = {
    "calls": CALLS,
    "tokens": TOKENS,
    "labels": LABELS,
    "rewards": REWARDS,
    "evaluations": EVALUATIONS,
    "solutions": SOLUTIONS,
    "pass_at_k": PASS_AT_K,
    "fast_p": FAST_P,
    "speedups": SPEEDUPS,
    "messages": MESSAGES,
    "branch_calls": BRANCH_CALLS,
    "branches": BRANCHES,
    "sessions": SESSIONS,
    "groups": GROUPS,
    "trajectories": TRAJECTORIES,
    "rounds": _ROUNDS,
    "round_metrics": _ROUND_METRICS,
    "versions": _VERSIONS,
    "refusals": _REFUSALS,
    "lost_calls": _LOST_CALLS,
    "actions": _ACTIONS,
    "members": _MEMBERS,
    "phases": _PHASES,
}


def keep_session(cursor: duckdb.DuckDBPyConnection, session_id: str) -> None:
    """Read the calls of one session into the cursor's own table, for `over_kept_session`."""
    cursor.execute(
        "CREATE OR REPLACE TEMP TABLE calls_of_session AS SELECT * FROM stored.calls WHERE session_id = $session",
        {"session": session_id},
    )


def over_kept_session(name: str) -> str:
    """The query of a view over the calls that `keep_session` read.

    A view that compares calls, or reads bodies, has to read those of all sessions before a condition outside it can
    choose. What the view says of its calls is the same over one session alone where it compares no calls of different
    sessions, as `calls`, `labels` and `messages` do not.
    """
    return VIEWS[name].replace("stored.calls", "calls_of_session")
