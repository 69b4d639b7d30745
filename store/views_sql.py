"""The text of the SQL views, in the order in which they build on each other. `stored.*` holds what they are made of."""

from __future__ import annotations

from weir.store.labels_sql import LABELS

_CALLS = """
SELECT
    call_id, session_id, group_id, session_source, dialect, level, model, stream,
    parent_call, prefix_len, depth, root_call, role, twin_of, ambiguous,
    make_timestamp(started_us) AS started_at,
    make_timestamp(finished_us) AS finished_at,
    started_us, first_token_us, finished_us,
    (finished_us - started_us) / 1000 AS duration_ms,
    (first_token_us - started_us) / 1000 AS first_token_ms,
    held_us / 1000 AS held_ms,
    num_prompt_tokens,
    num_prompt_tokens - prefix_len AS num_new_tokens,
    num_output_tokens,
    json_extract_string(decode(answer), '$.content') AS text,
    json_extract_string(decode(answer), '$.reasoning_content') AS reasoning,
    json_extract(decode(answer), '$.tool_calls') AS tool_calls,
    finish, finish_matched,
    spans,
    list_min(list_transform(spans, lambda s: TRY_CAST(s.label AS INTEGER))) AS version_min,
    list_max(list_transform(spans, lambda s: TRY_CAST(s.label AS INTEGER))) AS version_max,
    list_unique(list_transform(spans, lambda s: s.label)) AS num_versions,
    list_unique(list_transform(spans, lambda s: s.label)) > 1 AS spans_versions,
    stitch, stitch_call, stitch_differs_at,
    output_ids, output_logprobs,
    TRY(CAST(decode(request) AS JSON)) AS request,
    TRY(CAST(decode(answer) AS JSON)) AS answer,
    CAST(sampling AS JSON) AS sampling,
    CAST(agent_ids AS JSON) AS agent_ids,
    user_agent, engine_rids, error,
    request_id, coalesce(choice, 0) AS choice,
    cached_tokens, num_messages, retry_count, coalesce(forced, 0) AS forced_tokens,
    counted_prompt AS counted_prompt_tokens, counted_output AS counted_output_tokens,
    lower(hex(digest)) AS digest,
    label, rule AS label_rule, linked_call
FROM stored.calls LEFT JOIN labels USING (call_id)
"""

_TOKENS = """
SELECT
    call_id, session_id, group_id,
    CAST(unnest(range(num_output_tokens)) AS INTEGER) AS position,
    unnest(output_ids) AS token_id,
    unnest(output_logprobs) AS logprob,
    unnest(flatten(list_transform(
        spans, lambda s: list_resize(CAST([] AS INTEGER[]), s."end" - s.start, TRY_CAST(s.label AS INTEGER))
    ))) AS version
FROM stored.calls
WHERE num_output_tokens > 0
"""

_REWARDS = """
SELECT session_id, call_id, name, value, source, idempotency_key, make_timestamp(created_us) AS created_at
FROM stored.rewards
"""

_EVALUATIONS = """
SELECT
    call_id, session_id, group_id, round_id, compiled, correct, fault, raw_reward, result, content_hash,
    TRY_CAST(json_extract_string(CAST(result AS JSON), '$.details.timing.speedup') AS DOUBLE) AS speedup,
    make_timestamp(created_us) AS created_at
FROM stored.evaluations
"""

_SOLUTIONS = """
SELECT
    group_id,
    count(*) AS num_samples,
    count(*) FILTER (compiled) AS num_compiled,
    count(*) FILTER (correct) AS num_correct,
    max(speedup) FILTER (correct) AS best_speedup
FROM evaluations GROUP BY group_id
"""

# Chen et al., 2021, equation 1: 1 - C(n - c, k) / C(n, k), as a product
_PASS_AT_K = """
WITH chances AS (
    SELECT
        k,
        1 - list_product(list_transform(range(k), lambda i: greatest(num_samples - num_correct - i, 0)
            / (num_samples - i))) AS passes,
        1 - list_product(list_transform(range(k), lambda i: greatest(num_samples - num_compiled - i, 0)
            / (num_samples - i))) AS compiles
    FROM solutions, (SELECT unnest([1, 2, 4, 8, 16, 32]) AS k) WHERE num_samples >= k
)
SELECT k, count(*) AS num_groups, avg(passes) AS pass_at_k, avg(compiles) AS compile_at_k
FROM chances GROUP BY k ORDER BY k
"""

_FAST_P = """
SELECT
    p,
    count(*) AS num_groups,
    avg(CAST(num_correct > 0 AND (p = 0 OR coalesce(best_speedup > p, false)) AS INTEGER)) AS fast_p
FROM solutions, (SELECT unnest([0.0, 0.5, 0.8, 1.0, 1.5, 2.0]) AS p)
GROUP BY p ORDER BY p
"""

_SPEEDUPS = """
SELECT
    coalesce(round_id, 0) AS round_id,
    count(*) AS num_measured,
    avg(log2(speedup)) AS log_mean,
    stddev_pop(log2(speedup)) AS log_std,
    quantile_cont(log2(speedup), [0.05, 0.25, 0.5, 0.75, 0.95]) AS log_quantiles
FROM evaluations WHERE correct AND speedup > 0 GROUP BY 1
"""

_BRANCHES = """
WITH RECURSIVE
edge AS (
    SELECT call_id, session_id, group_id, parent_call, root_call, num_prompt_tokens, num_output_tokens,
        version_min, version_max
    FROM calls
),
path AS (
    SELECT call_id, [call_id] AS call_ids, num_output_tokens AS sampled, version_min AS low, version_max AS high
    FROM edge WHERE parent_call IS NULL
    UNION ALL
    SELECT edge.call_id, list_append(path.call_ids, edge.call_id), path.sampled + edge.num_output_tokens,
        least(path.low, edge.version_min), greatest(path.high, edge.version_max)
    FROM path JOIN edge ON edge.parent_call = path.call_id
)
SELECT
    leaf.call_id AS leaf_call, leaf.root_call, leaf.session_id, leaf.group_id, path.call_ids,
    len(path.call_ids) AS num_calls,
    leaf.num_prompt_tokens + leaf.num_output_tokens AS num_tokens,
    path.sampled AS num_sampled_tokens,
    path.low AS version_min, path.high AS version_max
FROM path JOIN edge leaf USING (call_id)
WHERE NOT EXISTS (
    SELECT 1 FROM edge child WHERE child.parent_call = leaf.call_id AND child.session_id = leaf.session_id
)
"""

_SESSIONS = """
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
)
SELECT
    session_id,
    coalesce(s.group_id, c.group_id) AS group_id,
    c.source,
    CASE WHEN s.session_id IS NULL THEN NULL ELSE coalesce(s.status, 'running') END AS status,
    coalesce(c.num_calls, 0) AS num_calls,
    coalesce(c.num_turns, 0) AS num_turns,
    coalesce(c.num_new_tokens, 0) AS num_new_tokens,
    coalesce(c.num_output_tokens, 0) AS num_output_tokens,
    coalesce(r.own, r.last_call, j.last_call) AS reward,
    coalesce(r.calls_mean, r.own_mean, j.calls_mean) AS reward_mean,
    c.version_min, c.version_max, c.first_call_at, c.last_call_at,
    make_timestamp(s.created_us) AS created_at,
    make_timestamp(s.finished_us) AS finished_at,
    s.metadata, s.info
FROM recorded c
FULL JOIN stored.sessions s USING (session_id)
LEFT JOIN rewarded r USING (session_id)
LEFT JOIN judged j USING (session_id)
"""

_GROUPS = """
WITH members AS (
    SELECT
        group_id,
        count(*) AS num_sessions,
        count(*) FILTER (status IN ('done', 'failed')) AS num_finished,
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
    coalesce(m.num_finished >= g.group_size, false) AS finished,
    coalesce(m.num_calls, 0) AS num_calls,
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

_VERSIONS = """
SELECT
    version, parent, round_id, path, manifest_sha256,
    make_timestamp(created_us) AS created_at,
    make_timestamp(published_us) AS published_at,
    engines
FROM stored.versions
"""

VIEWS: dict[str, str] = {
    "labels": LABELS,
    "calls": _CALLS,
    "tokens": _TOKENS,
    "rewards": _REWARDS,
    "evaluations": _EVALUATIONS,
    "solutions": _SOLUTIONS,
    "pass_at_k": _PASS_AT_K,
    "fast_p": _FAST_P,
    "speedups": _SPEEDUPS,
    "branches": _BRANCHES,
    "sessions": _SESSIONS,
    "groups": _GROUPS,
    "rounds": _ROUNDS,
    "versions": _VERSIONS,
}
