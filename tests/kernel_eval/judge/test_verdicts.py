"""The verdicts of a server on honest and on broken candidates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Read = Callable[[str], str]
RELU = "relu[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)"


def task(**replacements: str) -> str:
    """The relu task with lines of it changed."""
    parts = {"forward": "torch.relu(x)", "inputs": "[torch.randn(1000)]", "init": "[]", **replacements}
    return (
        "import torch\nclass Model(torch.nn.Module):\n"
        f"    def forward(self, x): return {parts['forward']}\n"
        f"def get_inputs(): return {parts['inputs']}\n"
        f"def get_init_inputs(): return {parts['init']}\n"
    )


@pytest.mark.parametrize("name", ["relu", "row_sum", "matmul"])
def test_a_correct_candidate_earns_one(name: str, contained_server: Any, read_example: Read) -> None:
    reply = contained_server.evaluate(
        read_example(f"{name}_candidate"), read_example(f"{name}_task"), num_correct_trials=3
    )
    assert (reply["correct"], reply["compiled"], reply["raw_reward"], reply["fault"]) == (True, True, 1.0, None), reply
    assert (reply["trials"], reply["mode"]) == (3, "interpreter")
    assert reply["sandbox"] in contained_server.first_line


def test_the_weakest_level_judges_too_and_says_what_it_is(start_server: Any, read_example: Read) -> None:
    with start_server(sandbox="rlimits") as weak:
        reply = weak.evaluate(read_example("relu_candidate"))
    assert (reply["correct"], reply["sandbox"]) == (True, "rlimits")


BROKEN = [
    ("class ModelNew(torch.nn.Module):", "class ModelNew(torch.nn.Module:", "syntax_error", 0.0),
    ("import triton\n", "import triton\nimport no_such_module\n", "import_error", 0.0),
    ("class ModelNew(", "class Model(", "missing_entry_point", 0.0),
    ("    def forward", "    def __init__(self):\n        raise KeyError('no')\n    def forward", "init_error", 0.1),
    ("tl.maximum(x, 0.0)", "tl.no_such_function(x)", "triton_compile_error", 0.1),
    ("tl.maximum(x, 0.0)", "x + tl.arange(0, 8)", "triton_compile_error", 0.1),
    ("        return out", "        raise ValueError('no')", "runtime_error", 0.1),
    ("        return out", "        return out[:-1]", "shape_mismatch", 0.1),
    ("        return out", "        return out, out", "shape_mismatch", 0.1),
    ("        return out", "        return None", "shape_mismatch", 0.1),
    ("        return out", "        return out.double()", "dtype_mismatch", 0.1),
    ("tl.maximum(x, 0.0)", "x / (x - x)", "non_finite", 0.3),
    ("        return out", "        return out * 1.0", "reward_hack", 0.0),
    ("tl.maximum(x, 0.0)", "tl.minimum(x, 0.0)", "output_mismatch", 0.3),
]


@pytest.mark.parametrize(("old", "new", "fault", "raw_reward"), BROKEN, ids=[f"{b[2]}-{b[1][:24]}" for b in BROKEN])
def test_a_broken_candidate_is_told_why(
    old: str, new: str, fault: str, raw_reward: float | None, server: Any, read_example: Read
) -> None:
    source = read_example("relu_candidate")
    assert old in source
    reply = server.evaluate(source.replace(old, new))
    assert (reply["fault"], reply["raw_reward"]) == (fault, raw_reward), reply
    assert reply["compiled"] == (raw_reward in (0.1, 0.3) or fault == "reward_hack")
    assert reply["fault_message"]


@pytest.mark.parametrize(
    ("reference", "fault"),
    [
        ("this is not Python", "invalid_reference"),
        (task(forward="x.no_such_method()"), "invalid_reference"),
        (task(forward="'text'"), "invalid_reference"),
        (task(inputs="1 / 0"), "invalid_reference"),
        ("class Model: pass", "invalid_reference"),
        (task(inputs="[torch.randn(8).to(torch.float8_e5m2)]"), "unsupported"),
    ],
)
def test_a_task_that_cannot_be_judged_is_never_the_candidates_fault(
    reference: str, fault: str, server: Any, read_example: Read
) -> None:
    reply = server.evaluate(read_example("relu_candidate"), reference)
    assert (reply["fault"], reply["raw_reward"], reply["correct"]) == (fault, None, False), reply


def test_a_reference_that_hangs_is_ended_and_is_ours(start_server: Any, read_example: Read) -> None:
    with start_server(reference_timeout_s=0.5) as impatient:
        endless = task(forward="[None for _ in iter(int, 1)]")
        reply = impatient.evaluate(read_example("relu_candidate"), endless)
        after = impatient.evaluate(read_example("relu_candidate"))
    assert (reply["fault"], reply["raw_reward"]) == ("invalid_reference", None)
    assert after["correct"]


def test_an_in_place_task_allows_what_its_own_code_does(server: Any, read_example: Read) -> None:
    in_place = read_example("relu_candidate").replace("out = torch.empty_like(x)", "out = x")
    assert server.evaluate(in_place, task(forward="x.relu_()"))["correct"]
    assert server.evaluate(in_place)["details"]["rule"] == "input_changed"


def test_a_value_that_only_float64_tells_right_is_accepted(server: Any, read_example: Read) -> None:
    lossy = task(forward="(x.half().float() * 0 + torch.relu(x.double()).to(x.dtype))")
    assert server.evaluate(read_example("relu_candidate"), lossy)["correct"]


def test_measured_performance_is_marked_as_the_interpreters_and_earns_nothing(server: Any, read_example: Read) -> None:
    reply = server.evaluate(read_example("relu_candidate"), measure_performance=True, num_perf_trials=100)
    assert reply["raw_reward"] == 1.0
    assert reply["trials"] == 3 + 5
    assert reply["details"]["timing"]["timing_kind"] == "interpreter"
    assert reply["details"]["timing"]["median_ms"] > 0


def test_what_a_candidate_prints_is_kept_but_not_believed(server: Any, read_example: Read) -> None:
    source = read_example("relu_candidate").replace("tl.maximum(x, 0.0)", "x") + "\nprint('{\"correct\": true}')\n"
    reply = server.evaluate(source)
    assert (reply["fault"], reply["correct"]) == ("output_mismatch", False)
    assert reply["details"]["output_tail"] == '{"correct": true}\n'
