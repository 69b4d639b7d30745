"""Every file of tests/cheats is a candidate; its constants name the expected verdict.

EXPECTED is the fault and RULE the rule that was broken; CLASSES are numbers of the known kinds of cheats, in the table
of docs/kernel_eval.md; TASK (relu, if not given), TRIALS and PERF_TRIALS say what it is asked. NEEDS_GPU: it is a
cheat on a GPU only. WRITES_FILES: at the weakest level it harms this machine, unless the server is root and
its workers are not.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.scripts.bench.kernel_eval.corpus import stated as constants

CHEATS = sorted((Path(__file__).parent.parent / "cheats").glob("*.py"))


def assert_found_out(source: str, server: Any, read_example: Any) -> None:
    stated = constants(source)
    num_perf_trials = stated.get("PERF_TRIALS", 0)
    reply = server.evaluate(
        source,
        read_example(f"{stated.get('TASK', 'relu')}_task"),
        num_correct_trials=stated.get("TRIALS", 2),
        measure_performance=num_perf_trials > 0,
        num_perf_trials=num_perf_trials,
    )
    assert (reply["fault"], reply["details"].get("rule")) == (stated["EXPECTED"], stated.get("RULE")), reply
    assert not reply["correct"]
    assert reply["raw_reward"] <= 0.3


@pytest.mark.parametrize("path", CHEATS, ids=lambda path: path.stem)
def test_a_cheat_is_found_out(path: Path, server_of_every_level: Any, read_example: Any) -> None:
    source = path.read_text()
    stated = constants(source)
    if stated.get("NEEDS_GPU"):
        pytest.skip("a cheat on a GPU only")
    level = server_of_every_level.http.get("/health").json()["sandbox"]
    if stated.get("WRITES_FILES") and level == SandboxLevel.RLIMITS and os.geteuid() != 0:
        pytest.skip("limits alone keep no user from writing his own files")
    assert_found_out(source, server_of_every_level, read_example)


@pytest.mark.parametrize("path", CHEATS, ids=lambda path: path.stem)
def test_a_cheat_is_never_correct_on_a_gpu(path: Path, gpu_server: Any, read_example: Any) -> None:
    source = path.read_text()
    stated = constants(source)
    if stated.get("NEEDS_GPU"):
        assert_found_out(source, gpu_server, read_example)
    else:
        reply = gpu_server.evaluate(source, read_example(f"{stated.get('TASK', 'relu')}_task"))
        assert not reply["correct"], reply


def test_every_known_class_of_cheats_has_a_file() -> None:
    classes = {number for path in CHEATS for number in constants(path.read_text())["CLASSES"]}
    assert classes == set(range(1, 32))


def test_the_server_still_judges_rightly_after_all_of_them(server_of_every_level: Any, read_example: Any) -> None:
    reply = server_of_every_level.evaluate(read_example("relu_candidate"))
    assert (reply["correct"], reply["raw_reward"], reply["fault"]) == (True, 1.0, None)


def test_the_docs_name_the_files_of_every_class() -> None:
    documented = (CHEATS[0].parents[2] / "docs" / "kernel_eval.md").read_text().splitlines()
    for path in CHEATS:
        for number in constants(path.read_text())["CLASSES"]:
            assert any(line.startswith(f"| {number} |") and f"`{path.stem}`" in line for line in documented), path
