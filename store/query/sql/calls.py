"""The views `calls` and `tokens`: recorded fields, and values derived from one record alone."""

from __future__ import annotations

VERSION = "TRY_CAST(replace(s.label, 'assumed:', '') AS INTEGER)"  # of a span `s`, as `VersionSpan.version`
ANSWER = "decode(nullif(answer, ''::BLOB))"  # empty where a call failed before it had one: that is no JSON

CALLS = f"""
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
    TRY(json_extract_string({ANSWER}, '$.content')) AS text,
    TRY(json_extract_string({ANSWER}, '$.reasoning_content')) AS reasoning,
    TRY(json_extract({ANSWER}, '$.tool_calls')) AS tool_calls,
    finish, finish_matched,
    spans,
    list_min(list_transform(spans, lambda s: {VERSION})) AS version_min,
    list_max(list_transform(spans, lambda s: {VERSION})) AS version_max,
    list_unique(list_transform(spans, lambda s: s.label)) AS num_versions,
    list_unique(list_transform(spans, lambda s: s.label)) > 1 AS spans_versions,
    stitch, stitch_call, stitch_differs_at,
    output_ids, output_logprobs,
    CASE WHEN len(sampling_logprobs) > 0 THEN sampling_logprobs END AS sampling_logprobs,
    CASE WHEN len(top_ids) > 0 THEN top_ids END AS top_ids,
    CASE WHEN len(top_logprobs) > 0 THEN top_logprobs END AS top_logprobs,
    prompt_from, CASE WHEN prompt_from IS NOT NULL THEN prompt_logprobs END AS prompt_logprobs,
    TRY(CAST(decode(request) AS JSON)) AS request,
    TRY(CAST(decode(answer) AS JSON)) AS answer,
    CAST(sampling AS JSON) AS sampling,
    CAST(nullif(asked_sampling, '{{}}') AS JSON) AS asked_sampling,
    ignored_fields,
    CAST(agent_ids AS JSON) AS agent_ids,
    user_agent, engine_rids,
    CAST(nullif(engine_settings, '') AS JSON) AS engine_settings,
    md5(nullif(engine_settings, '')) AS engine_digest,
    routed_from, routed_choices, routed_experts,
    error,
    request_id, coalesce(choice, 0) AS choice,
    cached_tokens, num_messages, retry_count, coalesce(forced, 0) AS forced_tokens,
    counted_prompt AS counted_prompt_tokens, counted_output AS counted_output_tokens,
    lower(hex(digest)) AS digest
FROM stored.calls
"""

TOKENS = f"""
SELECT
    call_id, session_id, group_id,
    CAST(unnest(range(num_output_tokens)) AS INTEGER) AS position,
    unnest(output_ids) AS token_id,
    unnest(output_logprobs) AS logprob,
    unnest(flatten(list_transform(
        spans, lambda s: list_resize(CAST([] AS INTEGER[]), s."end" - s.start, {VERSION})
    ))) AS version
FROM stored.calls
WHERE num_output_tokens > 0
"""
