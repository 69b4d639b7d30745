"""The reasons for which a call of a claimed group is not trained on; a round counts and reports them."""

from __future__ import annotations

import enum


class Skip(enum.StrEnum):
    """A reason; its value is the name in metrics."""

    UNFINISHED = "unfinished"  # aborted, disconnected or failed: its answer is not the model's whole answer
    LEVEL = "level"  # recorded as text only
    EMPTY = "empty"  # no prompt, or no output tokens
    STALE = "stale"  # sampled by weights older than max_staleness allows
    FUTURE = "future"  # sampled by weights newer than the round's parent
    GREEDY = "greedy"  # temperature 0 or top_k = 1, and off_policy.greedy = skip
    TRUNCATED_SAMPLING = "truncated_sampling"  # top_p, penalties, a grammar…, and off_policy.truncated = skip
    UNKNOWN_SUPPORT = (
        "unknown_support"  # top_k or min_p together with a grammar or bias: probabilities that nobody knows
    )
    TOO_LONG = "too_long"  # more tokens than max_sample_tokens
    TRUNCATED = "truncated"  # it ended at its token limit, and train_truncated is off
    UNROUTED = "unrouted"  # routing_replay is on, and the experts of its tokens are not recorded
    NOT_FINITE = "not_finite"  # a recorded logprob is NaN or infinite
    UNSUPPORTED = "unsupported"  # the judge cannot judge it
    UNREWARDED = "unrewarded"  # one of its rewards is not in the store, or its source has none for it
    REWARD_NOT_FINITE = "reward_not_finite"  # one of its rewards is NaN or infinite
    OTHER_BRANCH = "other_branch"  # not on a branch of its session that is trained on
    FILTERED = "filtered"  # dropped by a hook
    TOO_FEW_ITEMS = "too_few_items"  # filter_item left fewer of its group than min_valid_item_size_ratio
    NO_SPREAD = "no_spread"  # its group's returns are all alike
