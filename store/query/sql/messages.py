"""The view `messages`: the messages of requests and answers, one row each.

Bodies have the forms that agents send: chat completions, Responses, Messages and completions. A request that was
refused because it is not JSON has no messages. What is new is known before a message is read, so that a question
about new messages alone reads no others.
"""

from __future__ import annotations

MESSAGES = r"""
WITH said AS (
    SELECT call_id, session_id, group_id, started_us,
        TRY(CAST(decode(request) AS JSON)) AS body, TRY(CAST(decode(answer) AS JSON)) AS answer
    FROM stored.calls
),
listed AS (
    SELECT
        call_id, session_id, group_id, started_us, answer IS NOT NULL AS answered,
        list_filter([
            CASE WHEN json_extract(body, '$.system') IS NOT NULL
                THEN json_object('role', 'system', 'content', json_extract(body, '$.system')) END,
            CASE WHEN json_extract(body, '$.instructions') IS NOT NULL
                THEN json_object('role', 'system', 'content', json_extract(body, '$.instructions')) END
        ], lambda m: m IS NOT NULL)
        || coalesce(json_extract(body, '$.messages[*]'), [])
        || CASE json_type(body, '$.input')
            WHEN 'ARRAY' THEN json_extract(body, '$.input[*]')
            WHEN 'VARCHAR' THEN [json_object('role', 'user', 'content', json_extract(body, '$.input'))] ELSE [] END
        || CASE WHEN json_type(body, '$.prompt') = 'VARCHAR'
            THEN [json_object('role', 'user', 'content', json_extract(body, '$.prompt'))] ELSE [] END
        || CASE WHEN answer IS NOT NULL THEN [answer] ELSE [] END AS items
    FROM said
),
placed AS (
    SELECT *, len(items) - answered::INT AS num_asked, list_position(
        list_reverse(list_transform(
            list_transform(
                items[:len(items) - answered::INT], lambda m: json_extract_string(m, ['$.type', '$.role'])
            ),
            lambda k: CASE WHEN k[1] IN ('function_call_output', 'custom_tool_call_output') THEN false
                WHEN k[1] IN ('function_call', 'custom_tool_call', 'reasoning') THEN true ELSE k[2] = 'assistant' END
        )), true
    ) AS num_since_own
    FROM listed
),
item AS (
    SELECT call_id, session_id, group_id, started_us, answered, num_asked, num_since_own,
        unnest(items) AS item, CAST(unnest(range(len(items))) AS INTEGER) AS position
    FROM placed
),
read AS (
    SELECT
        call_id, session_id, group_id, started_us, position,
        position = num_asked AS is_answer,
        position > coalesce(num_asked - nullif(num_since_own, 0), -1) AS is_new,
        json_extract_string(item, '$.type') AS kind,
        CASE WHEN kind IN ('function_call_output', 'custom_tool_call_output') THEN 'tool'
            WHEN kind IN ('function_call', 'custom_tool_call', 'reasoning') THEN 'assistant'
            ELSE json_extract_string(item, '$.role') END AS role,
        coalesce(
            nullif(json_extract(item, '$.content'), 'null'), json_extract(item, '$.output'),
            json_extract(item, '$.summary')
        ) AS content,
        coalesce(nullif(json_extract_string(item, '$.reasoning_content'), 'null'), CASE kind WHEN 'reasoning' THEN
            array_to_string(json_extract_string(item, '$.summary[*].text'), '') END) AS reasoning,
        CASE WHEN kind IN ('function_call', 'custom_tool_call') THEN json_array(item)
            ELSE nullif(json_extract(item, '$.tool_calls'), 'null') END AS tool_calls,
        coalesce(json_extract_string(item, '$.tool_call_id'), json_extract_string(item, '$.call_id')) AS tool_call_id
    FROM item
)
SELECT
    call_id, session_id, group_id, position, role,
    CASE json_type(content)
        WHEN 'VARCHAR' THEN json_extract_string(content, '$')
        WHEN 'ARRAY' THEN array_to_string(json_extract_string(content, '$[*].text'), '') END AS text,
    reasoning, tool_calls, tool_call_id, content, is_answer, is_new,
    make_timestamp(started_us) AS started_at
FROM read
"""
