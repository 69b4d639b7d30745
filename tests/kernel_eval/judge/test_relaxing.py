"""Rules that a task or a request relaxes, singly and together; features that the interpreter lacks are no fault."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

Read = Callable[[str], str]
CHEATS = Path(__file__).parents[2] / "cheats"
LIBRARY_CALL = (
    "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
)
BROKEN = ("no_kernel_defined", "no_kernel_launched", "torch_operator")  # by that, in the order in which they are seen


@pytest.mark.parametrize("relaxed", [names for size in range(4) for names in combinations(BROKEN, size)], ids=str)
def test_a_rule_that_is_not_relaxed_holds_whichever_others_are(relaxed: tuple[str, ...], server: Any) -> None:
    reply = server.evaluate(LIBRARY_CALL, relax_rules=relaxed)
    first = next((name for name in BROKEN if name not in relaxed), None)
    assert (reply["details"].get("rule"), reply["correct"]) == (first, first is None), reply


def test_a_relaxed_rule_does_not_make_a_wrong_answer_right(server: Any) -> None:
    reply = server.evaluate(LIBRARY_CALL.replace("torch.relu(x)", "torch.relu(x) + 1"), relax_rules=BROKEN)
    assert (reply["fault"], reply["correct"]) == ("output_mismatch", False), reply


def test_a_rule_that_nobody_knows_is_refused_with_the_names_of_all(server: Any, read_example: Read) -> None:
    body = {"original_model_src": read_example("relu_task"), "custom_model_src": LIBRARY_CALL}
    refused = server.http.post("/eval", json={**body, "relax_rules": ["torch_operator", "torch_operators"]})
    assert refused.status_code == 400
    message = refused.json()["error"]["message"]
    assert "['torch_operators']" in message and "'no_kernel_launched'" in message


@pytest.mark.parametrize(
    "expression",
    [
        "tl.extra.cuda.libdevice.byte_perm(x.to(tl.int32), 0, 0).to(tl.float32)",
        "x.to(tl.float8e4b15).to(tl.float32)",
    ],
)
def test_what_only_the_interpreter_has_not_is_not_the_candidates_fault(
    expression: str, server: Any, read_example: Read
) -> None:
    reply = server.evaluate(read_example("relu_candidate").replace("tl.maximum(x, 0.0)", expression))
    assert (reply["fault"], reply["raw_reward"]) == ("unsupported", None), reply


def test_ir_that_differs_is_judged_as_what_it_is_where_that_is_relaxed(server: Any) -> None:
    source = (CHEATS / "compiles_otherwise_each_time.py").read_text()
    assert server.evaluate(source)["details"]["rule"] == "ir_differs"
    relaxed = server.evaluate(source, relax_rules=["ir_differs"], recompile=True)
    assert relaxed["correct"], relaxed
    # as on a GPU: the source gives for the constants of the first call what was tried
    assert relaxed["details"]["recompiled"] == "same"
