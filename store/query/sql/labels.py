"""The view `labels`: the purpose of a call, where the records show it, and the rule that decided.

A label never changes a call's place in the tree, and nothing is left out because of it. A call that no rule fits has no
label. The main line of a session is the root with the most turns, then the most tokens, then the earliest: agents ask
for titles before they work. The first rule that fits decides:

retry               same_prompt               the same prompt as an earlier call of its session (role retry or
                                              duplicate) that its client tried again or that gave no answer, and not
                                              another choice of the same request
replay              asked_again               the same prompt as a call of its session that had been answered
rejected_compaction history_kept              a compaction by the rules below with no turn after it, and the session's
                                              next call has the longer history again
rejected_compaction summary_unused            a summary by the rule below, and the session's next call has the longer
                                              history still
compaction          stitched_as_compacted     the proxy saw a shorter history in place of its session's
compaction          shorter_history           a root with the instructions and tools of earlier calls that continued
                                              others, and fewer messages
title               asks_for_title            no tools, no turn after it, at most 64 tokens; the prompt says "title"
summary             asks_for_summary          no turn after it and no tool call; its last message asks for a summary
rewrite             stitched_as_rewritten     the proxy saw a history that its session did not have
sub_agent           other_instructions        another root of the session with other instructions or tools than its main
                                              line
"""

from __future__ import annotations

LABELS = r"""
WITH said AS (
    SELECT
        call_id, session_id, parent_call, role, stitch, stitch_call, twin_of, root_call, started_us, finished_us,
        request_id, num_messages, num_output_tokens, retry_count, finish,
        num_prompt_tokens - prefix_len + num_output_tokens AS num_tokens,
        TRY(json_extract(decode(nullif(answer, ''::BLOB)), '$.tool_calls')) IS NOT NULL AS calls_tools,
        coalesce(json_array_length(parts[1]), 0) AS num_tools,
        coalesce(CAST(parts[1] AS VARCHAR), '[]') AS tools,
        coalesce(
            CAST(parts[2] AS VARCHAR), CAST(parts[3] AS VARCHAR),
            CASE WHEN json_extract_string(parts[4], '$') IN ('system', 'developer') THEN CAST(parts[5] AS VARCHAR) END,
            ''
        ) AS instructions,
        coalesce(CAST(parts[6] AS VARCHAR), CAST(parts[7] AS VARCHAR), CAST(parts[8] AS VARCHAR), '') AS question
    FROM (
        SELECT *, json_extract(TRY(CAST(decode(request) AS JSON)), [
            '$.tools', '$.system', '$.instructions', '$.messages[0].role', '$.messages[0].content',
            '$.messages[#-1].content', '$.input[#-1].content', '$.input'
        ]) AS parts  -- in one reading of the body
        FROM stored.calls
    )
),
sized AS (
    SELECT *, count(*) OVER of_root AS num_turns, sum(num_tokens) OVER of_root AS num_root_tokens
    FROM said
    WINDOW of_root AS (PARTITION BY session_id, root_call)
),
placed AS (
    SELECT
        s.*,
        first_value(call_id) OVER of_session AS main_root,
        count(*) OVER (PARTITION BY session_id) > 1 AS has_company,
        first_value(instructions) OVER of_session AS main_instructions,
        first_value(tools) OVER of_session AS main_tools,
        max(num_messages) FILTER (stitch IS DISTINCT FROM 'new_root') OVER (
            PARTITION BY session_id, instructions, tools ORDER BY started_us, call_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS most_messages,
        lead(num_messages) OVER (PARTITION BY session_id, instructions, tools ORDER BY started_us, call_id)
            AS next_messages,
        coalesce(t.request_id = s.request_id, false) AS is_choice,
        retry_count > 0 OR t.finish NOT IN ('stop', 'length') OR t.finished_us > s.started_us AS is_retried,
        EXISTS (SELECT 1 FROM stored.calls k WHERE k.parent_call = s.call_id AND k.session_id = s.session_id)
            AS goes_on
    FROM sized s
    LEFT JOIN (SELECT call_id AS twin, request_id, finish, finished_us FROM stored.calls) t ON t.twin = s.twin_of
    WINDOW of_session AS (
        PARTITION BY session_id ORDER BY role <> 'root', num_turns DESC, num_root_tokens DESC, started_us, call_id
    )
),
ruled AS (
    SELECT
        *,
        CASE
            WHEN role IN ('retry', 'duplicate') AND NOT is_choice AND is_retried THEN 'same_prompt'
            WHEN role IN ('retry', 'duplicate') AND NOT is_choice THEN 'asked_again'
            WHEN (stitch = 'compacted' OR is_shorter) AND NOT goes_on AND next_messages >= most_messages
                THEN 'history_kept'
            WHEN stitch = 'compacted' THEN 'stitched_as_compacted'
            WHEN is_shorter THEN 'shorter_history'
            WHEN has_company AND NOT goes_on AND num_tools = 0 AND num_output_tokens <= 64
                AND regexp_matches(instructions || question, '(?i)\btitle\b') THEN 'asks_for_title'
            WHEN is_summary AND next_messages >= num_messages THEN 'summary_unused'
            WHEN is_summary THEN 'asks_for_summary'
            WHEN stitch = 'history_rewritten' THEN 'stitched_as_rewritten'
            WHEN role = 'root' AND call_id <> main_root AND (instructions <> main_instructions OR tools <> main_tools)
                THEN 'other_instructions'
        END AS rule
    FROM (
        SELECT
            *,
            role = 'root' AND num_messages < most_messages AS is_shorter,
            has_company AND NOT goes_on AND NOT calls_tools AND regexp_matches(question, '(?i)\bsummar(y|i[sz]e)')
                AS is_summary
        FROM placed
    )
)
SELECT
    r.call_id,
    CASE any_value(rule)
        WHEN 'same_prompt' THEN 'retry'
        WHEN 'asked_again' THEN 'replay'
        WHEN 'history_kept' THEN 'rejected_compaction'
        WHEN 'summary_unused' THEN 'rejected_compaction'
        WHEN 'stitched_as_compacted' THEN 'compaction'
        WHEN 'shorter_history' THEN 'compaction'
        WHEN 'asks_for_title' THEN 'title'
        WHEN 'asks_for_summary' THEN 'summary'
        WHEN 'stitched_as_rewritten' THEN 'rewrite'
        WHEN 'other_instructions' THEN 'sub_agent'
    END AS label,
    any_value(rule) AS rule,
    coalesce(
        any_value(r.twin_of), any_value(r.stitch_call), arg_max(b.call_id, (b.finished_us, b.call_id))
    ) AS linked_call
FROM ruled r
LEFT JOIN stored.calls b
    ON b.session_id = r.session_id AND b.root_call <> r.root_call AND b.finished_us <= r.started_us AND r.role = 'root'
WHERE rule IS NOT NULL
GROUP BY r.call_id
"""
