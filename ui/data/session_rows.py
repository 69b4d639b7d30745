"""The table `session_rows`: the view `sessions`, with what sessions are filtered by.

It is made once for each snapshot, because every page of the sessions' table sorts and filters all of them.
"""

from __future__ import annotations

SESSION_ROWS = """
WITH seen AS (
    SELECT
        session_id,
        arg_max(finish, finished_us) AS finish,
        arg_max(dialect, started_us) AS dialect,
        max(level = 'text') AS any_text, max(level = 'logprobs') AS any_logprobs, max(level = 'tokens') AS any_tokens,
        arg_min(split_part(user_agent, ' ', 1), started_us) AS agent,
        count(error) AS num_errors
    FROM stored.calls GROUP BY session_id
), judged AS (
    SELECT session_id, bool_or(correct) AS correct, arg_max_null(fault, (call_id, created_us)) AS fault
    FROM stored.evaluations GROUP BY session_id
)
SELECT
    session_id, s.group_id, g.task ->> '$.task_id' AS task_id, s.source, s.status, s.reward, j.correct, j.fault,
    s.num_calls, s.num_turns, s.num_new_tokens, s.num_output_tokens, s.version_min, s.version_max,
    CASE WHEN any_text THEN 'text' WHEN any_logprobs THEN 'logprobs' WHEN any_tokens THEN 'tokens' END AS level,
    c.agent, c.dialect, c.finish, coalesce(c.num_errors, 0) AS num_errors,
    coalesce(s.first_call_at, s.created_at) AS started_at, s.last_call_at, s.finished_at,
    CAST(s.metadata AS VARCHAR) AS metadata, CAST(s.info AS VARCHAR) AS info
FROM sessions s
LEFT JOIN seen c USING (session_id)
LEFT JOIN judged j USING (session_id)
LEFT JOIN stored.groups g ON g.group_id = s.group_id
"""
