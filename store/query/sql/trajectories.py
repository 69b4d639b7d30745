"""The view `trajectories`, from which exports select: branches, with their session and group."""

from __future__ import annotations

TRAJECTORIES = """
SELECT
    b.leaf_call, b.root_call, b.session_id, b.group_id, g.task_id,
    s.status, s.reward, s.reward_mean,
    b.num_calls, b.num_tokens, b.num_sampled_tokens, b.finish, b.trainable, b.version_min, b.version_max,
    g.size AS group_size, g.round_id, coalesce(g.consumed, false) AS consumed,
    s.first_call_at, s.last_call_at,
    g.task, s.metadata, s.info
FROM branches b
JOIN sessions s USING (session_id)
LEFT JOIN groups g ON g.group_id = b.group_id
"""
