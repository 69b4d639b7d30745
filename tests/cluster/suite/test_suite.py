"""The suite's parts that are quick: published results of lending, and what a goal says."""

from __future__ import annotations

import pytest

from weir.cluster.description import WorkloadSection
from weir.cluster.suite.checks import Check
from weir.cluster.suite.published import lending
from weir.cluster.suite.scenarios import best_run

SHORT = WorkloadSection(kind="lognormal", prompt=128, median=200, spread=0.99, limit=2048)


def test_lending_gains_what_verl_published() -> None:
    checks = lending()
    assert [check for check in checks if not check.met] == []
    assert len(checks) == 3


def test_a_check_is_relative() -> None:
    check = Check(name="x", expected=100.0, simulated=114.0, tolerance=0.15)
    assert (check.error, check.met) == (pytest.approx(0.14), True)
    assert not Check(name="x", expected=100.0, simulated=84.0, tolerance=0.15).met


def test_tags_gives_more_than_each_policy_at_its_best_split() -> None:
    runs = {
        name: best_run(8, 512, name, SHORT, shares=(0.25, 0.5), versions=2)
        for name in ("disaggregated", "sync_colocated", "one_step_off", "tags")
    }
    rates = {name: run.result.tokens_per_s for name, run in runs.items()}
    assert max(rates, key=lambda name: rates[name]) == "tags"
    assert rates["tags"] > 1.5 * rates["disaggregated"]
