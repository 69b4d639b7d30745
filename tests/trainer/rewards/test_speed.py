"""Rounds that reward speed: what the judge is asked, what comes back, and judges that cannot time."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from support_rounds import Judge, add_group, trainer_config

from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.trainer.errors import JudgeUnavailable, TrainerUsageError
from weir.trainer.rewards.answers import Answer
from weir.trainer.rewards.judge import judge as judge_all
from weir.trainer.settings.reward_terms import RewardTerm
from weir.trainer.trainer import Trainer

TIMED = {"kernel_eval": {"performance": True, "performance_trials": 50}}
NOTES = ["", " speedup=0.5", " speedup=1.6", " speedup=4.0", ""]  # of a wrong answer, and of four right ones


@pytest.fixture
def gpu_judge(judge: Judge) -> Judge:
    judge.mode = "gpu"
    return judge


def trainer(store: StoreConfig, judge: Judge, model: Path, **more: Any) -> Trainer:
    return Trainer(trainer_config(judge, rewards=TIMED, **more), store, model_path=model)


def test_a_round_asks_for_times_and_trains_on_the_speed_of_correct_answers(
    tiny_model_dir: Path, store: StoreConfig, gpu_judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.3, 1.0, 1.0, 1.0, 1.0], notes=NOTES)
    with_speed = trainer(store, gpu_judge, tiny_model_dir)
    report = with_speed.run_round()
    with_speed.close()
    assert report is not None
    asked = {(request["measure_performance"], request["num_perf_trials"]) for request in gpu_judge.requests}
    assert asked == {(True, 50)}
    # the measurement of the last one was refused: it earns what a speedup of 1 does
    assert report.metrics["reward_mean"] == pytest.approx((0.3 + 0.3 + 0.9 + 2.3 + 0.3) / 5)
    assert report.metrics["samples"] == 5
    assert report.metrics["timed"] == 3
    assert report.metrics["speedup_mean"] == pytest.approx(6.1 / 3)
    assert report.metrics["speedup_max"] == 4.0
    assert report.metrics["log2_speedup_mean"] == pytest.approx((-1 + math.log2(1.6) + 2) / 3)
    assert report.metrics["fast_p"] == {"1": 1.0, "1.5": 1.0, "2": 1.0}
    assert report.metrics["speedup_unconfirmed"] == {"speedups of N and N do not agree": 1}


def test_a_verdict_without_a_time_is_not_taken_for_one_with_a_time(
    tiny_model_dir: Path, store: StoreConfig, gpu_judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0], notes=["", " speedup=3.0"])
    without = Trainer(trainer_config(gpu_judge), store, model_path=tiny_model_dir)
    choice = without.ready()
    answers = [Answer(call=call, task=g.task) for g in choice.groups for calls in g.calls.values() for call in calls]
    plain = judge_all(answers, {}, without.catalog, without.config, round_id=None)
    assert sorted(values["kernel_eval"] for values in plain.rewards.values()) == [0.0, 1.0]
    without.close()
    with_speed = trainer(store, gpu_judge, tiny_model_dir)
    report = with_speed.run_round()
    with_speed.close()
    assert report is not None
    assert report.metrics["reward_mean"] == pytest.approx(2.3 / 2)


def test_a_judge_without_a_gpu_is_refused_before_anything_is_claimed(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    refused = trainer(store, judge, tiny_model_dir)
    with pytest.raises(TrainerUsageError, match="runs on the interpreter, which shows nothing about speed"):
        refused.run_round()
    refused.config = refused.config.model_copy(update={"kernel_eval_url": "http://127.0.0.1:1"})
    with pytest.raises(JudgeUnavailable, match="nothing was claimed"):
        refused.run_round()
    refused.close()
    catalog = Catalog.open(store)
    assert (catalog.open_round(), judge.candidates) == (None, [])
    catalog.close()


def test_a_judge_that_lost_its_gpu_is_an_outage_and_rewards_nothing(
    tiny_model_dir: Path, store: StoreConfig, gpu_judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])

    def lose_the_gpu(step: str) -> None:
        if step == "claimed":
            gpu_judge.mode = "interpreter"

    with_speed = trainer(store, gpu_judge, tiny_model_dir)
    with_speed.on_step = lose_the_gpu
    with pytest.raises(JudgeUnavailable, match="shows nothing about speed"):
        with_speed.run_round()
    with_speed.on_step = lambda _: None
    gpu_judge.mode = "gpu"
    report = with_speed.run_round()
    with_speed.close()
    assert report is not None
    assert (report.round, report.metrics["judged_calls"]) == (1, 2)


def test_only_kernel_evaluation_can_be_asked_to_time() -> None:
    with pytest.raises(ValueError, match="this reward comes from function"):
        RewardTerm(function="a:b", performance=True)
    with pytest.raises(ValueError, match="no effect without performance"):
        RewardTerm(performance_trials=7)
