"""Rewards by name: a judge, a reward model behind HTTP, a function, the store, and their weighted sum."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path
from typing import Any

import pytest
from support_reward_model import reward_model
from support_rounds import Judge, add_group, trainer_config

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.rewards import rewards_of
from weir.store.catalog.rows import RewardRow
from weir.store.config import StoreConfig
from weir.trainer.errors import JudgeUnavailable, TrainerUsageError
from weir.trainer.rewards.answers import Answer
from weir.trainer.settings.reward_terms import RewardTerm, raw_reward, shaped_reward
from weir.trainer.trainer import Trainer

TEXTS = ["0.0", "0.3", "1.0"]  # rewards of a group's three answers, as `add_group` writes them


def told_reward(answer: str) -> float:
    """Ten times the reward that the scripted judge would read."""
    return 10 * float(answer.split("reward=")[1].split("\n")[0])


def num_characters(answer: Answer) -> float:
    return float(len(answer.text))


async def nan_for_the_best(answer: Answer) -> float:
    return math.nan if "reward=1.0" in answer.text else 0.5


def none_for_the_best(answer: Answer) -> float | None:
    return None if "reward=1.0" in answer.text else float("reward=0.3" in answer.text)


def broken(answer: Answer) -> float:
    raise KeyError(answer.call.call_id)


def high(answer: Answer) -> str:
    return "high"


def trainer(store: StoreConfig, judge: Judge, model: Path, rewards: dict[str, Any], **more: Any) -> Trainer:
    given = {"judge_retry_delay_s": 0.0, "rewards": rewards} | more
    return Trainer(trainer_config(judge, **given), store, model_path=model)


def test_a_reward_is_the_weighted_sum_of_bounded_rewards_and_the_raw_one_has_no_bounds() -> None:
    terms = {"kernel_eval": RewardTerm(), "style": RewardTerm(weight=0.5, low=-1, high=1, url="http://x")}
    assert shaped_reward({"kernel_eval": 0.3, "style": 7.0}, terms) == pytest.approx(0.3 + 0.5)
    assert shaped_reward({"kernel_eval": 0.3, "style": -7.0}, terms) == pytest.approx(0.3 - 0.5)
    assert raw_reward({"kernel_eval": 0.3, "style": 7.0}, terms) == pytest.approx(0.3 + 3.5)


def test_a_reward_that_names_two_sources_or_none_is_refused(judge: Judge) -> None:
    with pytest.raises(ValueError, match="comes from one place"):
        trainer_config(judge, rewards={"style": {"url": "http://x", "stored": True}})
    with pytest.raises(ValueError, match="the reward style comes from kernel_eval"):
        trainer_config(judge, rewards={"style": {}})
    with pytest.raises(ValueError, match="not below high"):
        trainer_config(judge, rewards={"kernel_eval": {"low": 1.0, "high": 0.0}})
    with pytest.raises(ValueError, match="finite"):
        trainer_config(judge, rewards={"kernel_eval": {"weight": math.inf}})


def test_a_reward_model_is_asked_in_batches_beside_the_judge_and_once_for_each_answer(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 0.3, 1.0])
    with reward_model(told_reward) as model:
        model.failures_left = 1  # our fault, not the answers'
        rewards = {
            "kernel_eval": {},
            "style": {"url": model.url, "weight": 0.1, "batch_size": 2, "key": "k", "high": 5.0},
        }
        running = trainer(store, judge, tiny_model_dir, rewards, judge_attempts=2)
        report = running.run_round()
        assert report is not None
        assert sorted(len(batch) for batch in model.batches) == [1, 2]
        assert model.keys == {"Bearer k"}
        assert report.metrics["rewards"] == pytest.approx({"kernel_eval": 1.3 / 3, "style": 13 / 3})
        assert report.metrics["reward_mean"] == pytest.approx((1.3 + 0.1 * 13) / 3)
        manifest = (store.root / "rounds" / "00000001" / "manifest.json").read_text()
        assert '"key"' not in manifest, "a manifest is no place for keys"
        sessions = [f"g1-{i}" for i in range(3)]
        assert sorted(row.value for row in rewards_of(running.catalog, sessions, ["style"])) == [0.0, 3.0, 10.0]
        running.close()


def test_a_reward_model_that_is_down_leaves_the_round_open_and_is_asked_later_for_the_rest(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 0.3, 1.0])
    with reward_model(told_reward) as first:
        first.failures_left = 99
        running = trainer(store, judge, tiny_model_dir, {"kernel_eval": {}, "style": {"url": first.url}})
        with pytest.raises(JudgeUnavailable, match=r"no rewards style from .*503: warming up.*the round stays open"):
            running.run_round()
        assert len(judge.candidates) == 3
        running.close()
    with reward_model(told_reward) as elsewhere:  # the same reward, at another address
        running = trainer(store, judge, tiny_model_dir, {"kernel_eval": {}, "style": {"url": elsewhere.url}})
        report = running.run_round()
        assert report is not None
        assert report.round == 1
        assert len(judge.candidates) == 3, "the judge's verdicts were kept"
        assert sum(len(batch) for batch in elsewhere.batches) == 3
        running.close()


@pytest.mark.parametrize(
    ("reward", "why"), [(lambda _: "high", "a reward is a number"), (lambda _: True, "a reward is a number")]
)
def test_a_reward_model_that_answers_something_else_is_named(
    reward: Any, why: str, tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    with reward_model(reward) as model:
        running = trainer(store, judge, tiny_model_dir, {"style": {"url": model.url}})
        with pytest.raises(JudgeUnavailable, match=why):
            running.run_round()
        running.close()


GARBAGE = [
    (b"no JSON", "Expecting value"),
    (b"\xff\xfe\x00", "UnicodeDecodeError"),
    (b"[0.1, 0.2]", "expected .*2 numbers"),
    (b'{"rewards": [0.1]}', "expected .*2 numbers"),
    (b'{"rewards": [0.1, 0.2, 0.3]}', "expected .*2 numbers"),
    (b'{"rewards": ["0.1", "0.2"]}', "a reward is a number"),
]


def test_garbage_of_a_reward_model_is_named_and_nothing_is_trained_on(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    with reward_model(told_reward) as model:
        says = model.reply
        running = trainer(store, judge, tiny_model_dir, {"style": {"url": model.url}})
        for said, why in GARBAGE:
            model.reply = lambda key, body, said=said: (200, said)  # type: ignore[method-assign, misc]
            with pytest.raises(JudgeUnavailable, match=why):
                running.run_round()
        model.reply = says  # type: ignore[method-assign]
        report = running.run_round()
        assert report is not None and (report.round, report.metrics["samples"]) == (1, 2)
        running.close()


def test_a_reward_model_that_is_slow_or_has_no_address_is_an_outage(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    goes_on = threading.Event()

    def waits(answer: str) -> float:
        goes_on.wait()
        return 1.0

    with reward_model(waits) as model:
        running = trainer(store, judge, tiny_model_dir, {"style": {"url": model.url}}, judge_timeout_s=0.3)
        with pytest.raises(JudgeUnavailable, match="Timeout"):
            running.run_round()
        goes_on.set()
        running.close()
    for url in ("http://x:port/rewards", "127.0.0.1:1/rewards"):
        running = trainer(store, judge, tiny_model_dir, {"style": {"url": url}})
        with pytest.raises(JudgeUnavailable, match=r"no rewards style from .*(InvalidURL|UnsupportedProtocol)"):
            running.run_round()
        running.close()


def test_numbers_beyond_all_bounds_are_counted_and_never_trained_on(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    """Rewards as a reward model may send them: 1e400, an integer of 400 digits, and two without a finite sum."""
    add_group(store, tiny_model_dir, "g1", [0.0, 0.3, 0.4, 0.5, 0.6, 1.0])
    numbers = {"0.0": b"1e400", "0.3": b"1" + b"0" * 400, "0.4": b"1.7e308", "0.5": b"-1.7e308", "0.6": b"NaN"}
    with reward_model(told_reward) as model:

        def reply(key: str | None, body: bytes) -> tuple[int, bytes]:
            texts = [item["answer"].split("reward=")[1].split("\n")[0] for item in json.loads(body)["items"]]
            return 200, b'{"rewards": [' + b", ".join(numbers.get(text, b"1.0") for text in texts) + b"]}"

        model.reply = reply  # type: ignore[method-assign]
        rewards = {"kernel_eval": {}, "style": {"url": model.url, "weight": 10.0}}
        running = trainer(store, judge, tiny_model_dir, rewards, keep_without_spread=True)
        report = running.run_round()
        assert report is not None
        assert report.metrics["skipped"] == {"reward_not_finite": 5}
        assert (report.metrics["samples"], report.metrics["reward_mean"]) == (1, 11.0)
        running.close()


def test_a_function_gives_rewards_without_any_judge(tiny_model_dir: Path, store: StoreConfig, judge: Judge) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 0.25, 1.0])
    running = trainer(store, judge, tiny_model_dir, {"length": {"function": f"{__name__}:num_characters"}})
    report = running.run_round()
    assert report is not None
    lengths = [len(f"```\ng1 {i} reward={reward}\n```") for i, reward in enumerate([0.0, 0.25, 1.0])]
    assert report.metrics["reward_mean"] == sum(lengths) / 3
    assert judge.candidates == []
    assert report.metrics["samples"] == 3
    running.close()


def test_a_function_that_raises_is_named_and_nothing_is_lost(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    running = trainer(store, judge, tiny_model_dir, {"odd": {"function": f"{__name__}:broken"}})
    with pytest.raises(
        JudgeUnavailable, match=r"the reward odd \(.*:broken\) raised KeyError: 'call-g1-[01]' \(.* line \d+\) on call"
    ):
        running.run_round()
    assert running.catalog.open_round() is not None
    running.close()


def test_a_function_that_gives_no_number_is_named(tiny_model_dir: Path, store: StoreConfig, judge: Judge) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    running = trainer(store, judge, tiny_model_dir, {"odd": {"function": f"{__name__}:high"}})
    with pytest.raises(JudgeUnavailable, match="raised ValueError: could not convert string to float"):
        running.run_round()
    running.close()


def test_functions_that_are_not_there_are_named_before_anything_is_claimed(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    for settings in ({"rewards": {"odd": {"function": "nowhere:odd"}}}, {"hooks": {"filter_item": "nowhere:odd"}}):
        running = Trainer(trainer_config(judge, **settings), store, model_path=tiny_model_dir)
        with pytest.raises(TrainerUsageError, match="cannot import 'nowhere:odd'"):
            running.run_round()
        assert running.catalog.open_round() is None
        running.close()


def test_a_reward_that_is_no_number_is_counted_and_never_trained_on(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 0.3, 1.0])
    rewards = {"kernel_eval": {}, "odd": {"function": f"{__name__}:nan_for_the_best"}}
    running = trainer(store, judge, tiny_model_dir, rewards)
    report = running.run_round()
    assert report is not None
    assert report.metrics["skipped"] == {"reward_not_finite": 1}
    assert (report.metrics["samples"], report.metrics["judged_calls"]) == (2, 2)
    assert report.metrics["reward_mean"] == pytest.approx((0.5 + 0.8) / 2)
    running.close()


def test_an_answer_that_a_source_cannot_reward_is_left_out_whatever_the_others_say(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 0.3, 1.0])
    rewards = {"kernel_eval": {}, "picky": {"function": f"{__name__}:none_for_the_best"}}
    running = trainer(store, judge, tiny_model_dir, rewards)
    report = running.run_round()
    assert report is not None
    assert report.metrics["skipped"] == {"unrewarded": 1}
    assert report.metrics["rewards"] == pytest.approx({"kernel_eval": 0.15, "picky": 0.5})
    running.close()


def reward_session(
    catalog: Catalog, session_id: str, value: float, *, key: str = "k", call_id: str | None = None
) -> None:
    catalog.add_rewards(
        [RewardRow(session_id=session_id, call_id=call_id, name="human", value=value, source="us", idempotency_key=key)]
    )


def test_rewards_that_are_in_the_store_are_waited_for_and_pinned_by_the_claim(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 0.3, 1.0])
    running = trainer(store, judge, tiny_model_dir, {"human": {"stored": True}})
    reward_session(running.catalog, "g1-0", 4.0)
    reward_session(running.catalog, "g1-1", 1.0, call_id="call-g1-1")
    assert running.run_round() is None, "a session of the group has no reward yet"
    reward_session(running.catalog, "g1-2", 0.0)
    reward_session(running.catalog, "g1-2", 7.0, key="again")  # the latest counts
    running.on_step = lambda step: (
        reward_session(running.catalog, "g1-0", 99.0, key="late") if step == "claimed" else None
    )
    report = running.run_round()
    assert report is not None
    assert report.metrics["reward_mean"] == pytest.approx(4.0)
    assert report.metrics["samples"] == 3
    assert judge.candidates == []
    running.close()
