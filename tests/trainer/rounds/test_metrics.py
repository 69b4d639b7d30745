"""The metrics of a round, against values computed by hand, and the places that hold them."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from support_rounds import Judge, add_group, trainer_config

from weir.store.catalog.rows import EvaluationRow
from weir.store.config import StoreConfig
from weir.store.reader import connect
from weir.trainer.errors import TrainerUsageError
from weir.trainer.rounds.kernel_metrics import chance_at_k, kernel_metrics
from weir.trainer.rounds.metrics import METRICS_LOG, is_reported, speed_metrics, write_metrics
from weir.trainer.trainer import Trainer


def evaluation(group_id: str, number: int, *, correct: bool, speedup: float | None = None) -> EvaluationRow:
    return EvaluationRow(
        call_id=f"{group_id}{number}",
        session_id="s",
        group_id=group_id,
        round_id=1,
        content_hash="h",
        compiled=number > 0,
        correct=correct,
        fault=None if correct else "output_mismatch",
        raw_reward=float(correct),
        result={"speedup": speedup},
        created_us=0,
    )


def test_the_chance_at_k_is_the_share_of_draws_with_a_right_one() -> None:
    samples = [True, False, False, True, False]
    draws = list(combinations(samples, 3))
    assert chance_at_k(5, 2, 3) == pytest.approx(sum(any(draw) for draw in draws) / len(draws))


def test_kernel_figures_are_means_over_the_groups_that_have_them() -> None:
    rows = [evaluation("a", i, correct=i == 1, speedup=4.0 if i == 1 else None) for i in range(4)]
    rows += [evaluation("b", i, correct=False) for i in range(2)]
    found = kernel_metrics(rows)
    assert (found["compiled"], found["correct"]) == (pytest.approx(4 / 6), pytest.approx(1 / 6))
    # of a's four samples one is correct; of b's two none, and it has no four samples
    assert found["correct_at_k"] == pytest.approx({"1": 0.125, "2": 0.25, "4": 1.0})
    assert found["compile_at_k"] == pytest.approx({"1": (3 / 4 + 1 / 2) / 2, "2": 1.0, "4": 1.0})
    assert (found["log2_speedup_mean"], found["fast_p"]) == (2.0, {"1": 0.5, "1.5": 0.5, "2": 0.5})
    assert found["faults"] == {"output_mismatch": 5}


def test_what_was_not_measured_is_absent() -> None:
    assert kernel_metrics([]) == {}
    assert "fast_p" not in kernel_metrics([evaluation("a", 1, correct=True)])
    assert speed_metrics(1000, 2.0, 10**6, None) == {"tokens_per_s": 500.0}
    assert speed_metrics(1000, 2.0, 10**6, 1.0)["mfu"] == pytest.approx(6 * 10**6 * 500 / 1e12)


def test_the_figures_of_rounds_and_their_steps_are_in_sql_and_in_tensorboard(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for group_id in ("g1", "g2", "g3"):
        add_group(store, tiny_model_dir, group_id, [0.0, 1.0])
    config = trainer_config(judge, tensorboard=True, optimizer_steps=2, groups_per_round=2, peak_tflops=0.1)
    trainer = Trainer(config, store, model_path=tiny_model_dir)
    report = trainer.run_round()
    assert report is not None
    steps = report.metrics["steps"]
    assert len(steps) == 2
    assert report.metrics["groups_waiting"] == 1
    assert 0 < report.metrics["mfu"] < 1
    with connect(store) as sql:
        found = dict(sql.sql("SELECT name, value FROM round_metrics WHERE round_id = 1").fetchall())
    assert found["loss"] == pytest.approx(report.metrics["loss"])
    assert found["steps[1].grad_norm"] == pytest.approx(steps[1]["grad_norm"])
    assert {"seconds.judge", "seconds.publish", "raw_reward_histogram.<0.1", "correct_at_k.2"} <= set(found)
    events = EventAccumulator(str(store.folder / "tensorboard"))
    events.Reload()
    assert [event.value for event in events.Scalars("step/loss")] == pytest.approx([step["loss"] for step in steps])
    assert events.Scalars("reward_mean")[0].value == pytest.approx(0.5)
    trainer.close()


def test_a_folder_in_the_place_of_the_figures_is_named(tmp_path: Path) -> None:
    log = tmp_path / METRICS_LOG
    log.mkdir()
    with pytest.raises(TrainerUsageError, match=r"cannot read .*metrics.jsonl: Is a directory; .* move it away"):
        write_metrics(tmp_path, {"round": 1}, tensorboard=False)
    log.rmdir()
    write_metrics(tmp_path, {"round": 1}, tensorboard=False)
    assert is_reported(tmp_path, 1) and not is_reported(tmp_path, 2)
