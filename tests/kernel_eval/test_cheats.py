"""Every file of tests/cheats is a candidate; its constants say what must become of it.

EXPECTED is the fault and RULE the rule that was broken; CLASSES are numbers of the known kinds of cheats, in the table
of docs/kernel_eval.md; TASK (relu, if not given), TRIALS and PERF_TRIALS say what it is asked. NEEDS_GPU: it is a
cheat on a GPU only.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

CHEATS = sorted((Path(__file__).parent.parent / "cheats").glob("*.py"))


def constants(source: str) -> dict[str, Any]:
    """Read, not imported: a cheat must not run here."""
    assigned = [node for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    named = {node.targets[0].id: node.value for node in assigned if isinstance(node.targets[0], ast.Name)}
    return {name: ast.literal_eval(value) for name, value in named.items() if name.isupper()}


@pytest.mark.parametrize("path", CHEATS, ids=lambda path: path.stem)
def test_a_cheat_is_found_out(path: Path, contained_server: Any, read_example: Any) -> None:
    source = path.read_text()
    stated = constants(source)
    if stated.get("NEEDS_GPU") and contained_server.http.get("/health").json()["mode"] != "gpu":
        pytest.skip("a cheat on a GPU only, and this server has none")
    num_perf_trials = stated.get("PERF_TRIALS", 0)
    reply = contained_server.evaluate(
        source,
        read_example(f"{stated.get('TASK', 'relu')}_task"),
        num_correct_trials=stated.get("TRIALS", 2),
        measure_performance=num_perf_trials > 0,
        num_perf_trials=num_perf_trials,
    )
    assert (reply["fault"], reply["details"].get("rule")) == (stated["EXPECTED"], stated.get("RULE")), reply
    assert not reply["correct"]
    assert reply["raw_reward"] <= 0.3


def test_every_known_class_of_cheats_has_a_file() -> None:
    classes = {number for path in CHEATS for number in constants(path.read_text())["CLASSES"]}
    assert classes == set(range(1, 32))


def test_the_server_still_judges_rightly_after_all_of_them(contained_server: Any, read_example: Any) -> None:
    reply = contained_server.evaluate(read_example("relu_candidate"))
    assert (reply["correct"], reply["raw_reward"], reply["fault"]) == (True, 1.0, None)


def test_the_docs_name_the_files_of_every_class() -> None:
    documented = (CHEATS[0].parents[2] / "docs" / "kernel_eval.md").read_text().splitlines()
    for path in CHEATS:
        for number in constants(path.read_text())["CLASSES"]:
            assert any(line.startswith(f"| {number} |") and f"`{path.stem}`" in line for line in documented), path
