"""`weir bench kernel-eval --memory` in small: every role has a peak, and figures are multiples of the tensors."""

from __future__ import annotations

import asyncio

from weir.scripts.bench.kernel_eval.memory import over_tensors, peaks


def test_judge_and_player_of_a_small_evaluation_have_peaks() -> None:
    found = asyncio.run(peaks("matmul", 64))
    assert set(found) == {"judge", "player"}
    assert all(peak > 1 << 20 for peak in found.values())


def test_figures_are_what_a_large_task_takes_beyond_a_small_one() -> None:
    small, large = {"judge": 300, "player": 200}, {"judge": 1000, "player": 340}
    assert over_tensors("case", small, large, 200) == {"judge_over_tensors_case": 3.5, "player_over_tensors_case": 0.7}
