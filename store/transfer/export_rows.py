"""A trajectory as a row of each export's form. Pure functions.

`WHOLE` is Weir's own form, the same in JSON Lines and Parquet, and what an import reads. The others have the columns
that their trainers expect; tokens that were not sampled have mask 0 and logprob 0 there.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from weir.store.query.trajectories import CallPart, Trajectory

IMPORTED_FROM = "imported_from"  # in `agent_ids`: the file that a call was imported from; not exported
# An import turns a line's `reward` into this reward where it has no `rewards`.
LONE_REWARD: dict[str, Any] = {"call_id": None, "name": "reward", "source": "import", "idempotency_key": "import"}
_JSON_DETAILS = ("sampling", "agent_ids")
_FACTS = ("leaf_call", "session_id", "group_id", "task_id", "status", "reward", "group_size")
_JSON_FACTS = ("task", "metadata", "info")

_CALL = pa.struct(
    [
        *((name, pa.string()) for name in ("call_id", "session_id")),
        *((name, pa.int32()) for name in ("start", "output_start", "end")),
        *((name, pa.string()) for name in ("finish", "request", "answer", "details")),
    ]
)
_REWARD = pa.struct(
    [
        *((name, pa.string()) for name in ("call_id", "name")),
        ("value", pa.float64()),
        *((name, pa.string()) for name in ("source", "idempotency_key")),
    ]
)
_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_IDS, _FLOATS, _MASK = pa.list_(pa.int32()), pa.list_(pa.float32()), pa.list_(pa.int8())

WHOLE = pa.schema(
    [
        *((name, pa.string()) for name in ("leaf_call", "session_id", "group_id", "task_id", "status")),
        ("reward", pa.float64()),
        ("group_size", pa.int32()),
        *((name, pa.string()) for name in _JSON_FACTS),
        ("rewards", pa.list_(_REWARD)),
        ("prompt_ids", _IDS),
        ("completion_ids", _IDS),
        ("completion_mask", _MASK),
        ("completion_logprobs", _FLOATS),
        ("completion_versions", _IDS),
        ("calls", pa.list_(_CALL)),
    ]
)
TRL = pa.schema(
    [
        ("prompt", _MESSAGES),
        ("prompt_ids", _IDS),
        ("completion_ids", _IDS),
        ("logprobs", _FLOATS),
        ("env_mask", _MASK),
        ("reward", pa.float64()),
        *((name, pa.string()) for name in ("group_id", "session_id", "leaf_call")),
        *((name, pa.int32()) for name in ("version_min", "version_max")),
    ]
)
VERL = pa.schema(
    [
        ("data_source", pa.string()),
        ("prompt", _MESSAGES),
        ("uid", pa.string()),
        ("prompts", _IDS),
        ("responses", _IDS),
        ("response_mask", _MASK),
        ("rollout_log_probs", _FLOATS),
        ("rm_scores", _FLOATS),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        (
            "extra_info",
            pa.struct(
                [
                    *((name, pa.string()) for name in ("session_id", "leaf_call", "task_id")),
                    *((name, pa.int32()) for name in ("version_min", "version_max")),
                ]
            ),
        ),
    ]
)


def whole_row(one: Trajectory) -> dict[str, Any]:
    """The row with everything that an import needs; JSON inside it is parsed."""
    at = one.prompt_len
    return {
        **{name: one.facts[name] for name in _FACTS},
        **{name: _decoded(one.facts[name]) for name in _JSON_FACTS},
        "rewards": _rewards(one),
        "prompt_ids": one.ids[:at].tolist(),
        "completion_ids": one.ids[at:].tolist(),
        "completion_mask": one.mask[at:].tolist(),
        "completion_logprobs": [None if np.isnan(value) else value for value in one.logprobs[at:].tolist()],
        "completion_versions": one.versions[at:],
        "calls": [_call(part) for part in one.parts],
    }


def flat_row(one: Trajectory) -> dict[str, Any]:
    """The same row with JSON as text, for a table of the schema WHOLE."""
    row = whole_row(one)
    row |= {name: _encoded(row[name]) for name in _JSON_FACTS}
    row["calls"] = [
        call | {name: _encoded(call[name]) for name in ("request", "answer", "details")} for call in row["calls"]
    ]
    return row


def trl_row(one: Trajectory) -> dict[str, Any]:
    """A row of TRL's columns: what a `rollout_func` of GRPOTrainer returns."""
    at = one.prompt_len
    return {
        "prompt": prompt_messages(one),
        "prompt_ids": one.ids[:at],
        "completion_ids": one.ids[at:],
        "logprobs": completion_logprobs(one),
        "env_mask": one.mask[at:].astype(np.int8),
        **{name: one.facts[name] for name in ("reward", "group_id", "session_id", "leaf_call")},
        **{name: one.facts[name] for name in ("version_min", "version_max")},
    }


def verl_row(one: Trajectory) -> dict[str, Any]:
    """A row with verl's names, before padding. The reward is at the last token."""
    at = one.prompt_len
    scores = np.zeros(len(one.ids) - at, np.float32)
    scores[-1] = one.facts["reward"]
    return {
        "data_source": one.facts["task_id"] or "weir",
        "prompt": prompt_messages(one),
        "uid": one.facts["group_id"],
        "prompts": one.ids[:at],
        "responses": one.ids[at:],
        "response_mask": one.mask[at:].astype(np.int8),
        "rollout_log_probs": completion_logprobs(one),
        "rm_scores": scores,
        "reward_model": {"style": "rule", "ground_truth": ""},
        "extra_info": {
            name: one.facts[name] for name in ("session_id", "leaf_call", "task_id", "version_min", "version_max")
        },
    }


def slime_row(one: Trajectory, index: int, group_index: int) -> dict[str, Any]:
    """The fields of slime's `Sample.to_dict()`."""
    at = one.prompt_len
    last = one.parts[-1]
    answer = _decoded(last.answer)
    return {
        "group_index": group_index,
        "index": index,
        "prompt": prompt_messages(one),
        "tokens": one.ids.tolist(),
        "response": str(answer.get("content") or "") if isinstance(answer, dict) else "",
        "response_length": len(one.ids) - at,
        "label": one.facts["task_id"],
        "reward": one.facts["reward"],
        "loss_mask": one.mask[at:].tolist(),
        "weight_versions": sorted({span.label for part in one.parts for span in part.spans}),
        "rollout_log_probs": completion_logprobs(one).tolist(),
        "status": {"stop": "completed", "length": "truncated", "error": "failed"}.get(last.finish, "aborted"),
        "metadata": {name: one.facts[name] for name in ("leaf_call", "session_id", "group_id")},
        "session_id": one.facts["session_id"],
    }


def completion_logprobs(one: Trajectory) -> Any:
    """Logprobs of the tokens after the prompt; 0 where a token was not sampled."""
    return np.nan_to_num(one.logprobs[one.prompt_len :], nan=0.0)


def prompt_messages(one: Trajectory) -> list[dict[str, str]]:
    """The messages that the branch begins with; empty where its first request has none."""
    body = _decoded(one.parts[0].request)
    messages = body.get("messages") if isinstance(body, dict) else None
    told = [message for message in messages or () if isinstance(message, dict)]
    return [{"role": str(message.get("role")), "content": _text(message.get("content"))} for message in told]


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _rewards(one: Trajectory) -> list[dict[str, Any]]:
    """The rewards of the session; a reward that was imported as one number is only the row's `reward`."""
    rewards = [dict(reward) for reward in one.rewards]
    is_lone = len(rewards) == 1 and rewards[0].items() >= LONE_REWARD.items()
    return [] if is_lone else rewards


def _call(part: CallPart) -> dict[str, Any]:
    details = {name: value for name, value in part.details.items() if value is not None}
    details |= {name: _decoded(details[name]) for name in _JSON_DETAILS if name in details}
    details["agent_ids"].pop(IMPORTED_FROM, None)
    details["spans"] = [[span.start, span.end, span.label] for span in part.spans]
    return {
        **{name: getattr(part, name) for name in ("call_id", "session_id", "start", "output_start", "end", "finish")},
        "request": _decoded(part.request),
        "answer": _decoded(part.answer),
        "details": details,
    }


def _decoded(data: bytes | str | None) -> Any:
    """JSON as values; text that is not JSON, or is nested too deep, stays text."""
    if not data:
        return None
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return data if isinstance(data, str) else data.decode(errors="replace")


def _encoded(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
