"""Two weight versions on the same tasks: which were gained, which were lost; and one task over all versions."""

from __future__ import annotations

from typing import Any

import duckdb

from weir.ui.data.rows import rows
from weir.ui.errors import NotFound

# A session belongs to the newest version that sampled it.
_BY_TASK = """
WITH played AS (
    SELECT task_id, version_max AS version, count(*) AS sessions, avg(reward) AS reward, avg(correct::INT) AS correct,
        arg_max(session_id, reward) AS best, arg_min(session_id, reward) AS worst
    FROM session_rows WHERE task_id IS NOT NULL AND version_max IN ($a, $b) GROUP BY ALL
)
SELECT task_id, a.sessions AS a_sessions, b.sessions AS b_sessions, a.reward AS a_reward, b.reward AS b_reward,
    a.correct AS a_correct, b.correct AS b_correct, b.reward - a.reward AS gain,
    a.best AS a_best, b.best AS b_best, a.worst AS a_worst, b.worst AS b_worst
FROM (FROM played WHERE version = $a) a FULL JOIN (FROM played WHERE version = $b) b USING (task_id)
ORDER BY abs(gain) DESC NULLS LAST, task_id LIMIT 500
"""
_VERSIONS = """
SELECT version_max AS version, count(*) AS sessions
FROM session_rows WHERE version_max IS NOT NULL GROUP BY 1 ORDER BY 1
"""
_TASK = """
SELECT version_max AS version, count(*) AS sessions, avg(reward) AS reward, min(reward) AS least, max(reward) AS most,
    avg(correct::INT) AS correct, avg(num_output_tokens) AS output_tokens, arg_max(session_id, reward) AS best,
    arg_min(session_id, reward) AS worst
FROM session_rows WHERE task_id = $task AND version_max IS NOT NULL GROUP BY 1 ORDER BY 1
"""


def compare(cursor: duckdb.DuckDBPyConnection, a: int | None, b: int | None) -> dict[str, Any]:
    """Each task's mean reward under two versions, the largest difference first; by default oldest and newest."""
    versions = rows(cursor, _VERSIONS)
    known = [row["version"] for row in versions]
    a = known[0] if a is None and known else a
    b = known[-1] if b is None and known else b
    tasks = rows(cursor, _BY_TASK, {"a": a, "b": b}) if known else []
    gains = [row["gain"] for row in tasks if row["gain"] is not None]
    return {
        "a": a,
        "b": b,
        "versions": versions,
        "tasks": tasks,
        "gained": sum(gain > 0 for gain in gains),
        "lost": sum(gain < 0 for gain in gains),
        "same": sum(gain == 0 for gain in gains),
    }


def task_over_versions(cursor: duckdb.DuckDBPyConnection, task: str) -> dict[str, Any]:
    """What each version's sessions earned with a task, the oldest version first. Raises NotFound."""
    versions = rows(cursor, _TASK, {"task": task})
    if not versions:
        raise NotFound(f"no weight version has played a task {task!r}; the page Compare lists tasks")
    return {"task": task, "versions": versions}
