"""The SQL macros: branches as training sequences with their loss masks, texts of tokens, returns.

A policy selects which of a session's branches trains on a call that several share: 'first', 'last' or 'longest' count
each sampled token once; 'every' counts it in each branch. Scalar macros are created before the views, because they use
none; table macros after them.
"""

from __future__ import annotations

from weir.store.query.sql.calls import VERSION

# rewards[t] + gamma * rewards[t + 1] + …: what a call is worth with what came after it
_DISCOUNTED_RETURN = """
discounted_return(rewards, gamma) AS
list_transform(rewards, lambda r, t:
    list_sum(list_transform(rewards[t:], lambda later, k: later * CAST(gamma AS DOUBLE) ** (k - 1))))
"""

_MASK = """
mask(start, output_start, stop, is_target) AS
list_resize(CAST([] AS UTINYINT[]), output_start - start, 0)
|| list_resize(CAST([] AS UTINYINT[]), stop - output_start, CAST(is_target AS UTINYINT))
"""

_IS_TARGET = """
is_target(policy, first, last, longest) AS
CASE policy WHEN 'first' THEN first WHEN 'last' THEN last WHEN 'longest' THEN longest WHEN 'every' THEN true
    ELSE error('policy ' || policy || ': expected first, last, longest or every') END
"""

_SPAN_TEXT = """
span_text(call, start, stop) AS
(SELECT token_text(output_ids[start + 1 : stop]) FROM stored.calls WHERE call_id = call)
"""

# The base of a stored prompt is never longer than its parent's end: more calls are known now than when it was stored.
_SEQUENCES = f"""
sequences(policy) AS TABLE
SELECT
    b.leaf_call,
    any_value(b.session_id) AS session_id,
    any_value(b.group_id) AS group_id,
    list(b.call_id ORDER BY b.place) AS call_ids,
    arg_min(b.output_start, b.place) AS num_prompt_tokens,
    flatten(list(
        CASE WHEN c.base_len > b.start THEN error('call ' || c.call_id || ' is stored behind its parent''s end')
            ELSE c.prompt_suffix[b.start - c.base_len + 1 :] || c.output_ids END ORDER BY b.place)) AS ids,
    flatten(list(mask(b.start, b.output_start, b."end", is_target(policy, b.first, b.last, b.longest))
        ORDER BY b.place)) AS mask,
    flatten(list(
        list_resize(CAST([] AS FLOAT[]), b.output_start - b.start, NULL)
        || list_resize(c.output_logprobs, c.num_output_tokens, NULL) ORDER BY b.place)) AS logprobs,
    flatten(list(
        list_resize(CAST([] AS INTEGER[]), b.output_start - b.start, NULL)
        || list_resize(flatten(list_transform(c.spans, lambda s: list_resize(
            CAST([] AS INTEGER[]), s."end" - s.start, {VERSION}))), c.num_output_tokens, NULL)
        ORDER BY b.place)) AS versions,
    flatten(list(
        list_resize(CAST([] AS VARCHAR[]), b."end" - b.start, c.call_id) ORDER BY b.place)) AS of_call
FROM branch_calls b JOIN stored.calls c USING (call_id)
GROUP BY b.leaf_call
"""

_BRANCH_TOKENS = """
branch_tokens(leaf, policy) AS TABLE
SELECT
    CAST(unnest(range(len(ids))) AS INTEGER) AS position,
    unnest(ids) AS token_id,
    unnest(of_call) AS call_id,
    unnest(list_transform(logprobs, lambda x: x IS NOT NULL)) AS sampled,
    unnest(mask) = 1 AS target,
    unnest(logprobs) AS logprob,
    unnest(versions) AS version
FROM sequences(policy) WHERE leaf_call = leaf
"""

MACROS: tuple[str, ...] = (_DISCOUNTED_RETURN, _MASK, _IS_TARGET, _SPAN_TEXT, _SEQUENCES, _BRANCH_TOKENS)
