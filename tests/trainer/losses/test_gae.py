"""Token-level credit: along branches, across observations, and equal to call-level credit where it should be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.trainer.credit.returns import trajectory_returns, turn_returns
from weir.trainer.credit.samples import Sample
from weir.trainer.hooks import GroupItem
from weir.trainer.losses.gae import generalised_advantages
from weir.trainer.settings.config import TrainerConfig


def make_sample(call_id: str, follows: str | None, reward: float, length: int) -> Sample:
    return Sample(
        call_id=call_id,
        group_id="g",
        prompt_ids=np.zeros(1, np.int32),
        output_ids=np.zeros(length, np.int32),
        old_logprobs=np.zeros(length, np.float32),
        versions=np.zeros(length, np.int32),
        temperature=1.0,
        advantage=0.0,
        reward=reward,
        follows=follows,
    )


def make_item(call_id: str, parent: str | None, reward: float) -> GroupItem:
    return GroupItem(
        session_id="s",
        call_id=call_id,
        parent_call=parent,
        turn=0,
        reward=reward,
        raw_reward=reward,
        rewards={},
        compiled=None,
        correct=None,
        fault=None,
    )


def zeros(samples: list[Sample]) -> dict[str, np.ndarray]:
    return {sample.call_id: np.zeros(len(sample.output_ids), np.float32) for sample in samples}


@given(st.lists(st.tuples(st.floats(-2, 2), st.integers(1, 4)), min_size=1, max_size=5), st.floats(0, 1))
def test_without_a_critic_and_with_lambda_1_a_turn_is_worth_its_discounted_return(
    turns: list[tuple[float, int]], gamma: float
) -> None:
    config = TrainerConfig(algorithm="ppo", gae_lambda=1.0, gamma=gamma)
    samples = [
        make_sample(f"c{i}", f"c{i - 1}" if i else None, reward, length) for i, (reward, length) in enumerate(turns)
    ]
    items = [make_item(sample.call_id, sample.follows, sample.reward) for sample in samples]
    found = generalised_advantages(samples, config, values=zeros(samples), penalties=None)
    for sample, wanted in zip(samples, turn_returns(items, gamma).returns, strict=True):
        assert found[sample.call_id].advantages == pytest.approx(np.full(len(sample.output_ids), wanted))


def test_a_call_that_two_branches_share_is_worth_their_mean() -> None:
    config = TrainerConfig(algorithm="ppo", credit="trajectory", gae_lambda=1.0)
    samples = [
        make_sample("root", None, 0.0, 2),
        make_sample("left", "root", 1.0, 3),
        make_sample("right", "root", 0.5, 1),
    ]
    items = [make_item(sample.call_id, sample.follows, sample.reward) for sample in samples]
    found = generalised_advantages(samples, config, values=zeros(samples), penalties=None)
    assert [float(found[s.call_id].advantages[0]) for s in samples] == trajectory_returns(items, 1.0).returns


def test_values_are_carried_across_an_observation() -> None:
    """By hand: delta = 0.9 V(next) - V at the seam, 0.9 being the discount of turns."""
    config = TrainerConfig(algorithm="ppo", gae_lambda=0.0, gamma=0.9)
    samples = [make_sample("first", None, 0.0, 2), make_sample("second", "first", 1.0, 1)]
    values = {"first": np.array([0.1, 0.2], np.float32), "second": np.array([0.5], np.float32)}
    found = generalised_advantages(samples, config, values=values, penalties=None)
    assert found["first"].advantages == pytest.approx([0.2 - 0.1, 0.9 * 0.5 - 0.2])
    assert found["second"].advantages == pytest.approx([1.0 - 0.5])
    assert found["second"].returns == pytest.approx([1.0])
