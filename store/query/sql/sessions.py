"""The views `sessions`, `groups` and `rewards`."""

from __future__ import annotations

REWARDS = """
SELECT session_id, call_id, name, value, source, idempotency_key, make_timestamp(created_us) AS created_at
FROM stored.rewards
"""

SESSIONS = """
WITH recorded AS (
    SELECT
        session_id,
        any_value(group_id) AS group_id,
        arg_min(session_source, started_us) AS source,
        count(*) AS num_calls,
        max(depth) + 1 AS num_turns,
        sum(num_new_tokens)::BIGINT AS num_new_tokens,
        sum(num_output_tokens)::BIGINT AS num_output_tokens,
        min(version_min) AS version_min,
        max(version_max) AS version_max,
        min(started_at) AS first_call_at,
        max(finished_at) AS last_call_at
    FROM calls GROUP BY session_id
),
rewarded AS (
    SELECT
        session_id,
        arg_max(value, created_us) FILTER (call_id IS NULL) AS own,
        arg_max(value, (call_id, created_us)) FILTER (call_id IS NOT NULL) AS last_call,
        avg(value) FILTER (call_id IS NULL) AS own_mean,
        avg(value) FILTER (call_id IS NOT NULL) AS calls_mean
    FROM stored.rewards GROUP BY session_id
),
judged AS (
    SELECT session_id, arg_max(raw_reward, (call_id, created_us)) AS last_call, avg(raw_reward) AS calls_mean
    FROM stored.evaluations GROUP BY session_id
),
lost AS (
    SELECT session_id, any_value(group_id) AS group_id, count(*) AS num_calls FROM stored.lost_calls GROUP BY session_id
),
refused AS (
    SELECT session_id, sum(num_requests)::BIGINT AS num_requests FROM stored.refusals GROUP BY session_id
)
SELECT
    session_id,
    coalesce(s.group_id, c.group_id, l.group_id) AS group_id,
    c.source,
    CASE WHEN s.session_id IS NULL THEN NULL ELSE coalesce(s.status, 'running') END AS status,
    coalesce(c.num_calls, 0) AS num_calls,
    coalesce(c.num_turns, 0) AS num_turns,
    coalesce(c.num_new_tokens, 0) AS num_new_tokens,
    coalesce(c.num_output_tokens, 0) AS num_output_tokens,
    coalesce(l.num_calls, 0) AS num_lost_calls,
    coalesce(f.num_requests, 0) AS num_refused,
    coalesce(r.own, r.last_call, j.last_call) AS reward,
    coalesce(r.calls_mean, r.own_mean, j.calls_mean) AS reward_mean,
    c.version_min, c.version_max, c.first_call_at, c.last_call_at,
    make_timestamp(s.created_us) AS created_at,
    make_timestamp(s.finished_us) AS finished_at,
    s.metadata, s.info
FROM recorded c
FULL JOIN stored.sessions s USING (session_id)
FULL JOIN lost l USING (session_id)
LEFT JOIN rewarded r USING (session_id)
LEFT JOIN judged j USING (session_id)
LEFT JOIN refused f USING (session_id)
"""

GROUPS = """
WITH members AS (
    SELECT
        group_id,
        count(*) AS num_sessions,
        count(*) FILTER (status IN ('done', 'failed')) AS num_finished,
        count(*) FILTER (status IN ('done', 'failed') AND num_lost_calls = 0) AS num_complete,
        sum(num_lost_calls)::BIGINT AS num_lost_calls,
        sum(num_calls)::BIGINT AS num_calls,
        avg(reward) AS reward_mean,
        max(reward) AS reward_max
    FROM sessions GROUP BY group_id
)
SELECT
    group_id,
    g.task ->> '$.task_id' AS task_id,
    g.group_size AS size,
    coalesce(m.num_sessions, 0) AS num_sessions,
    coalesce(m.num_finished, 0) AS num_finished,
    coalesce(m.num_complete >= g.group_size, false) AS finished,
    coalesce(m.num_calls, 0) AS num_calls,
    coalesce(m.num_lost_calls, 0) AS num_lost_calls,
    m.reward_mean, m.reward_max,
    taken.round_id,
    coalesce(r.state = 'committed', false) AS consumed,
    g.task,
    make_timestamp(g.created_us) AS created_at
FROM members m
FULL JOIN stored.groups g USING (group_id)
LEFT JOIN stored.round_groups taken USING (group_id)
LEFT JOIN stored.rounds r ON r.round_id = taken.round_id
"""
