"""Attacks mixed with honest candidates, at every level: neighbours are judged rightly, and nothing is left behind.

WEIR_TEST_HOSTILE sets how many there are; `weir bench kernel-eval --hostile 1000` is the same from a shell.
"""

from __future__ import annotations

import os

import pytest

from weir.kernel_eval.sandbox import containment
from weir.kernel_eval.sandbox.levels import SandboxLevel
from weir.scripts.bench.kernel_eval.hostile import run_hostile

COUNT = int(os.environ.get("WEIR_TEST_HOSTILE", "20"))


@pytest.mark.parametrize("level", list(SandboxLevel))
def test_the_server_comes_through_attacks_and_cleans_up(level: SandboxLevel) -> None:
    if not containment.works(level):
        pytest.skip(f"the sandbox level {level} does not work on this machine")
    tally = run_hostile(COUNT, level, seed=list(SandboxLevel).index(level))
    assert tally.ok, tally
