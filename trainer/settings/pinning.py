"""Which settings a round's weights depend on, and their hash. This module imports no torch."""

from __future__ import annotations

import hashlib
import json
from typing import Any

# Settings that may differ between two attempts at the same round without changing its weights.
NOT_PINNED = frozenset(
    {
        "proxy_urls",
        "engine_urls",
        "router_url",
        "control_key",
        "kernel_eval_url",
        "kernel_eval_key",
        "judge_concurrency",
        "judge_timeout_s",
        "judge_attempts",
        "judge_retry_delay_s",
        "judge_ahead_groups",
        "publish_timeout_s",
        "takes_turns",
        "publish",
        "launch",
        "keep_versions",
        "keep_state_every",
        "keep_full_every",
        "keep_tokens",
        "missing_state",
        "min_groups",
        "group_timeout_s",
        "min_timeout_group_size_ratio",
        "groups_where",
        "max_buffer_size",
        "peak_tflops",
        "loop_trigger",
        "loop_every_s",
        "tensorboard",
        "loop_poll_s",
        "lease_s",
    }
)


def config_hash(pinned: dict[str, Any]) -> str:
    """sha256 of the canonical JSON of pinned settings."""
    return hashlib.sha256(json.dumps(pinned, sort_keys=True).encode()).hexdigest()
