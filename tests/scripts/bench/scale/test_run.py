"""`weir bench scale` over a tiny model: both sides compute the same, and its ratios are those of what was counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weir.scripts.bench.scale.requests import Opened
from weir.scripts.bench.scale.run import measure, resumed
from weir.scripts.bench.scale.workload import Work, samples_of, with_experts, write_model


def test_two_ranks_are_measured_beside_one_process(tmp_path: Path) -> None:
    write_model("tiny", tmp_path / "tiny")
    found = measure(tmp_path / "tiny", tmp_path, Work(num_samples=2, length=64, budget=64), 1, None)
    assert found["torch_tok_s"] > 0 and found["torch_over_one"] > 0 and found["torch_cpu_over_one"] > 0
    assert found["checkpoint_mb"] == pytest.approx(12 * 4.1, rel=0.1)  # weights and moments of 4.1 M parameters
    assert found["checkpoint_over_disk"] > 0 and found["disk_spread"] >= 1
    assert 1 <= found["resume_read_over_own"] < 1.02
    assert 0.5 <= found["resume_read_over_whole"] < 0.51


def test_a_mixture_replays_the_choices_of_its_own_routers(tmp_path: Path) -> None:
    write_model("moe", tmp_path / "moe")
    samples = with_experts(tmp_path / "moe", samples_of(Work(num_samples=2, length=16, budget=32), vocabulary=8192))
    experts = np.stack([sample.routed_experts for sample in samples]).reshape(2, 15, 4, 4)  # tokens, layers, chosen
    assert all(len(set(chosen)) == 4 and max(chosen) < 16 for chosen in experts.reshape(-1, 4).tolist())


def test_what_a_rank_reads_is_compared_with_what_it_owns() -> None:
    opened = [Opened(numbers=100, rows_read=1200, rest_read=60), Opened(numbers=50, rows_read=600, rest_read=0)]
    found = resumed(opened)
    assert found["resume_read_over_own"] == pytest.approx(1.05)
    assert found["resume_read_over_whole"] == pytest.approx(1260 / 1800)


def test_the_samples_of_a_step_fill_its_micro_batches() -> None:
    work = Work(num_samples=4, length=32, budget=64)
    samples = samples_of(work, vocabulary=100)
    assert sum(len(sample.ids) for sample in samples) == work.tokens == 128
    assert max(int(sample.ids.max()) for sample in samples) < 100
    assert len({sample.call_id for sample in samples}) == 4
