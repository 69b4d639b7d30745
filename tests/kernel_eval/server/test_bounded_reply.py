"""What a reply holds is bounded, and what was left out is said."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from weir.kernel_eval.protocol import EvalReply, EvalRequest
from weir.kernel_eval.server.bounded_reply import MAX_CHARS, MAX_DEPTH, MAX_ITEMS, bounded, bounded_text
from weir.kernel_eval.server.result_cache import ResultCache


def test_a_long_text_keeps_its_ends() -> None:
    text = bounded_text("a" * 5000 + "b" * 5000)
    assert len(text) < MAX_CHARS + 100
    assert text.startswith("aaa")
    assert text.endswith("bbb")
    assert "6000 characters are left out" in text
    assert bounded_text("short") == "short"


def test_values_of_any_form_are_bounded() -> None:
    deep: Any = "end"
    for _ in range(MAX_DEPTH + 5):
        deep = [deep]
    value = {
        "list": list(range(1000)),
        "object": {str(n): n for n in range(1000)},
        "deep": deep,
        "k" * 900: 1,
        "n": None,
    }
    seen = bounded(value)
    assert seen["list"][:3] == [0, 1, 2]
    assert seen["list"][-1] == f"{1000 - MAX_ITEMS} more are left out"
    assert seen["object"]["left_out"] == 1000 - MAX_ITEMS
    assert "is left out" in str(seen["deep"])
    assert seen["n"] is None
    assert max(len(key) for key in seen) < 300
    assert len(msgspec.json.encode(bounded({str(n): "x" * 9999 for n in range(999)}))) < 2 * MAX_ITEMS * MAX_CHARS


def _reply(message: str) -> EvalReply:
    fields: dict[str, Any] = {"compiled": True, "correct": True, "raw_reward": 1.0, "fault_message": message}
    return msgspec.convert({**msgspec.to_builtins(_EMPTY), **fields}, EvalReply)


_EMPTY = msgspec.convert(
    {
        "compiled": False,
        "correct": False,
        "fault": None,
        "fault_message": None,
        "raw_reward": None,
        "sandbox": "rlimits",
        "mode": "interpreter",
        "trials": 0,
        "seconds": 0.0,
        "speedup": None,
        "details": {},
    },
    EvalReply,
)


def _request(number: int) -> EvalRequest:
    return EvalRequest(original_model_src="task", custom_model_src=str(number))


@pytest.mark.parametrize(
    ("max_entries", "max_bytes", "kept"), [(3, 1 << 20, 3), (99, 4500, 4), (0, 1 << 20, 0), (9, 500, 0)]
)
def test_the_cache_is_bounded_by_entries_and_by_bytes(max_entries: int, max_bytes: int, kept: int) -> None:
    cache = ResultCache(max_entries, max_bytes)
    for number in range(10):
        cache.keep(_request(number), _reply("x" * 800))
    found = [number for number in range(10) if cache.find(_request(number)) is not None]
    assert found == list(range(10 - kept, 10))
