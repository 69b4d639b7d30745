"""The text of the view `branches`: the paths from root to leaf in the trees of calls."""

from __future__ import annotations

BRANCHES = """
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
