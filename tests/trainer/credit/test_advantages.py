"""Credit and advantages, against values computed by hand."""

from __future__ import annotations

import math

import pytest

from weir.trainer.credit.advantages import EPS, group_advantages, grpo, rloo
from weir.trainer.credit.returns import trajectory_returns, turn_returns
from weir.trainer.hooks import Group, GroupItem


def item(call_id: str, reward: float, *, session: str = "s", parent: str | None = None, turn: int = 0) -> GroupItem:
    return GroupItem(
        session_id=session,
        call_id=call_id,
        parent_call=parent,
        turn=turn,
        reward=reward,
        raw_reward=reward,
        rewards={},
        compiled=True,
        correct=reward == 1.0,
        fault=None,
    )


def group(*items: GroupItem) -> Group:
    return Group(group_id="g", group_size=len(items), items=items)


def test_grpo_divides_by_the_unbiased_standard_deviation() -> None:
    # mean 0.5, std = sqrt(((.5)² + (.5)² + 0 + 0) / 3) = sqrt(1/6)
    spread = math.sqrt(1 / 6) + EPS
    assert grpo([0.0, 1.0, 0.5, 0.5], [0.0, 1.0, 0.5, 0.5]) == pytest.approx([-0.5 / spread, 0.5 / spread, 0.0, 0.0])


def test_a_group_of_one_or_of_equals_has_no_signal() -> None:
    assert grpo([0.7], [0.7]) == [0.0]
    assert grpo([0.3] * 8, [0.3] * 8) == [0.0] * 8
    assert group_advantages(group(item("a", 0.7)), credit="turn", advantage="grpo", gamma=0.4) is None


def test_turn_credit_is_the_discounted_sum_of_own_and_later_rewards() -> None:
    items = [item("a", 0.1), item("b", 0.3), item("c", 1.0)]
    assert turn_returns(items, 0.4).returns == pytest.approx([0.1 + 0.4 * 0.3 + 0.16 * 1.0, 0.3 + 0.4 * 1.0, 1.0])


def test_turn_credit_of_one_turn_sessions_is_plain_grpo() -> None:
    rewards = [0.0, 0.3, 1.0]
    found = group_advantages(
        group(*(item(f"c{i}", reward, session=f"s{i}") for i, reward in enumerate(rewards))),
        credit="turn",
        advantage="grpo",
        gamma=0.4,
    )
    assert found is not None
    assert list(found.values()) == pytest.approx(grpo(rewards, rewards))


def test_trajectory_credit_gives_each_call_the_last_reward_of_its_branch() -> None:
    items = [item("a", 0.1), item("b", 0.3, parent="a"), item("c", 1.0, parent="b")]
    credited = trajectory_returns(items, 0.4)
    assert credited.returns == [1.0, 1.0, 1.0]
    assert credited.baseline == [1.0]  # a branch counts once, however many calls it has


def test_a_call_that_branches_share_gets_their_mean() -> None:
    items = [item("a", 0.1), item("b", 0.0, parent="a"), item("c", 1.0, parent="a"), item("other root", 0.3)]
    credited = trajectory_returns(items, 0.4)
    assert credited.returns == [0.5, 0.0, 1.0, 0.3]
    assert credited.baseline == [0.0, 1.0, 0.3]


def test_trajectory_advantages_compare_branches_not_calls() -> None:
    long = [item("a", 0.0, session="long"), item("b", 1.0, session="long", parent="a")]
    found = group_advantages(
        group(*long, item("c", 0.0, session="short")), credit="trajectory", advantage="grpo", gamma=0.4
    )
    spread = math.sqrt(0.5) + EPS  # of the two branches 1 and 0
    assert found == pytest.approx({"a": 0.5 / spread, "b": 0.5 / spread, "c": -0.5 / spread})


def test_groups_of_unequal_size_do_not_touch_each_other() -> None:
    small = group(item("a", 0.0, session="1"), item("b", 1.0, session="2"))
    large = group(*(item(f"c{i}", float(i), session=str(i)) for i in range(5)))
    alone = [group_advantages(g, credit="turn", advantage="grpo", gamma=0.4) for g in (small, large)]
    assert alone[0] == pytest.approx({"a": -0.5 / (math.sqrt(0.5) + EPS), "b": 0.5 / (math.sqrt(0.5) + EPS)})
    assert alone[1] is not None
    assert sum(alone[1].values()) == pytest.approx(0.0, abs=1e-9)


def test_turn_rloo_compares_the_same_turn_of_other_sessions() -> None:
    first = [item("a0", 0.0, session="a", turn=0), item("a1", 1.0, session="a", turn=1)]
    second = [item("b0", 0.5, session="b", turn=0), item("b1", 0.0, session="b", turn=1)]
    third = [item("c0", 0.3, session="c", turn=0)]
    found = group_advantages(group(*first, *second, *third), credit="turn", advantage="turn_rloo", gamma=0.4)
    # returns: a 0 + .4 · 1 = .4 and 1; b .5 and 0; c .3
    expected = {"a0": 0.4 - 0.4, "b0": 0.5 - 0.35, "c0": 0.3 - 0.45, "a1": 1.0 - 0.0, "b1": 0.0 - 1.0}
    assert found == pytest.approx(expected)


def test_turn_rloo_has_nothing_to_compare_a_turn_with_that_one_session_reached() -> None:
    long = [item("a0", 0.0, session="a", turn=0), item("a1", 1.0, session="a", turn=1)]
    found = group_advantages(
        group(*long, item("b0", 0.0, session="b", turn=0)), credit="turn", advantage="turn_rloo", gamma=0.4
    )
    assert found == pytest.approx({"a0": 0.4, "b0": -0.4, "a1": 0.0})
    alone = group_advantages(group(*long), credit="turn", advantage="turn_rloo", gamma=0.4)
    assert alone is None


def test_turn_rloo_of_one_turn_sessions_is_plain_rloo() -> None:
    rewards = [0.0, 0.3, 1.0]
    items = [item(f"c{i}", reward, session=f"s{i}") for i, reward in enumerate(rewards)]
    found = group_advantages(group(*items), credit="turn", advantage="turn_rloo", gamma=0.4)
    assert found is not None
    assert list(found.values()) == pytest.approx(rloo(rewards, rewards))
