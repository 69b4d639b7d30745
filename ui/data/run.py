"""The run as a whole: totals, rounds over time and as a table of phases, versions."""

from __future__ import annotations

from typing import Any

import duckdb

from weir.ui.data.rows import rows
from weir.ui.data.timeline import timeline

_TOTALS = """
SELECT (SELECT count(*) FROM session_rows) AS sessions, (SELECT coalesce(sum(num_calls), 0)::BIGINT FROM session_rows)
    AS calls, (SELECT coalesce(sum(num_output_tokens), 0)::BIGINT FROM session_rows) AS output_tokens,
    (SELECT count(*) FROM session_rows WHERE status = 'running') AS running,
    (SELECT count(*) FROM rounds WHERE state = 'committed') AS rounds,
    (SELECT max(version) FROM versions WHERE published_at IS NOT NULL) AS version,
    (SELECT max(last_call_at) FROM session_rows) AS last_call_at
"""
_ROUNDS = """
SELECT round_id, state, weight_version, num_groups, claimed_at, committed_at, duration_s
FROM rounds ORDER BY round_id DESC LIMIT 200
"""
_SECONDS = "SELECT name, round_id, value FROM round_metrics WHERE starts_with(name, 'seconds.') ORDER BY name"
_BY_VERSION = """
SELECT version_max AS version, count(*) AS sessions, avg(reward) AS reward, avg(correct::INT) AS correct,
    avg(num_turns) AS turns, avg(num_output_tokens) AS output_tokens
FROM session_rows WHERE version_max IS NOT NULL GROUP BY 1 ORDER BY 1
"""
_FAULTS = """
SELECT fault, count(*) AS num_sessions FROM session_rows WHERE fault IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 12
"""


def run(cursor: duckdb.DuckDBPyConnection, num_rounds: int, newest: int | None) -> dict[str, Any]:
    """Totals, the latest rounds with the seconds of their phases, and what sessions earned by weight version.

    The timeline has the latest `num_rounds` rounds up to `newest`.
    """
    phases: dict[int, dict[str, float]] = {}
    for row in rows(cursor, _SECONDS):
        phases.setdefault(row["round_id"], {})[row["name"].removeprefix("seconds.")] = row["value"]
    rounds = rows(cursor, _ROUNDS)
    for row in rounds:
        row["phases"] = phases.get(row["round_id"], {})
    return {
        "totals": rows(cursor, _TOTALS)[0],
        "rounds": rounds,
        "timeline": timeline(cursor, num_rounds, newest),
        "by_version": rows(cursor, _BY_VERSION),
        "faults": rows(cursor, _FAULTS),
    }
