"""The views `branch_calls` and `branches`: the paths from root to leaf in the trees of calls.

Invariant: a sampled token is a target in exactly one branch under each of the policies `first`, `last` and `longest`: a
call that several branches of its session share is assigned to one of them. A branch may begin with calls of another
session; those are targets in their own session's branches only.
"""

from __future__ import annotations

# A tree with one leaf is one path, whatever its length: only the others are climbed call by call.
BRANCH_CALLS = """
WITH RECURSIVE
node AS MATERIALIZED (
    SELECT call_id, session_id, group_id, parent_call, root_call, started_us,
        depth, prefix_len, num_prompt_tokens, num_output_tokens
    FROM stored.calls
),
leaf AS MATERIALIZED (
    SELECT call_id AS leaf_call, session_id, group_id, root_call, started_us AS leaf_us,
        num_prompt_tokens + num_output_tokens AS leaf_tokens,
        count(*) OVER (PARTITION BY root_call) AS num_leaves
    FROM node
    WHERE NOT EXISTS (FROM node k WHERE k.parent_call = node.call_id AND k.session_id = node.session_id)
),
bushy AS MATERIALIZED (
    SELECT call_id, parent_call FROM node
    WHERE root_call IN (SELECT root_call FROM leaf WHERE num_leaves > 1)
),
climb AS (
    SELECT leaf_call, leaf_call AS call_id FROM leaf WHERE num_leaves > 1
    UNION ALL
    SELECT climb.leaf_call, bushy.parent_call
    FROM climb JOIN bushy USING (call_id) WHERE bushy.parent_call IS NOT NULL
),
path AS (
    FROM climb
    UNION ALL
    SELECT leaf_call, call_id FROM leaf JOIN node USING (root_call) WHERE num_leaves = 1
)
SELECT
    leaf_call, leaf.session_id, leaf.group_id, call_id,
    node.depth AS place,
    node.prefix_len AS start,
    node.num_prompt_tokens AS output_start,
    node.num_prompt_tokens + node.num_output_tokens AS "end",
    node.session_id = leaf.session_id AS own,
    own AND row_number() OVER (PARTITION BY call_id, own ORDER BY leaf_us, leaf_call) = 1 AS first,
    own AND row_number() OVER (PARTITION BY call_id, own ORDER BY leaf_us DESC, leaf_call DESC) = 1 AS last,
    own AND row_number() OVER (PARTITION BY call_id, own ORDER BY leaf_tokens DESC, leaf_us, leaf_call) = 1 AS longest
FROM path JOIN leaf USING (leaf_call) JOIN node USING (call_id)
"""

BRANCHES = """
SELECT
    b.leaf_call,
    any_value(c.root_call) AS root_call,
    any_value(b.session_id) AS session_id,
    any_value(b.group_id) AS group_id,
    list(b.call_id ORDER BY b.place) AS call_ids,
    count(*) AS num_calls,
    max(b."end") AS num_tokens,
    sum(b."end" - b.output_start)::BIGINT AS num_sampled_tokens,
    coalesce(sum(b."end" - b.output_start) FILTER (b.first), 0)::BIGINT AS num_first_tokens,
    coalesce(sum(b."end" - b.output_start) FILTER (b.last), 0)::BIGINT AS num_last_tokens,
    coalesce(sum(b."end" - b.output_start) FILTER (b.longest), 0)::BIGINT AS num_longest_tokens,
    arg_max(c.finish, b.place) AS finish,
    bool_and(c.level = 'tokens') AS trainable,
    min(c.version_min) AS version_min,
    max(c.version_max) AS version_max
FROM branch_calls b JOIN calls c USING (call_id)
GROUP BY b.leaf_call
"""
