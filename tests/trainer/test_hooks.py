"""The five hooks: what the defaults keep, and what a replacement may do."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from weir.trainer.errors import TrainerUsageError
from weir.trainer.hooks import Group, GroupItem, Hooks, apply_hooks, load_hooks, shuffle_rewards
from weir.trainer.skip import Skip


def item(call_id: str, reward: float) -> GroupItem:
    return GroupItem(
        session_id=f"s-{call_id}",
        call_id=call_id,
        parent_call=None,
        turn=0,
        reward=reward,
        raw_reward=reward,
        rewards={},
        compiled=True,
        correct=False,
        fault=None,
    )


def group(group_id: str, *rewards: float) -> Group:
    items = tuple(item(f"{group_id}{i}", reward) for i, reward in enumerate(rewards))
    return Group(group_id=group_id, group_size=len(items), items=items)


def drop_low(found: GroupItem) -> bool:
    return found.reward > 0.2


def double(found: Group) -> Group:
    return replace(found, items=tuple(replace(i, reward=2 * i.reward) for i in found.items))


def rewrite_raw(found: Group) -> Group:
    return replace(found, items=tuple(replace(i, raw_reward=9.0) for i in found.items))


def test_the_defaults_keep_every_finite_reward_however_large() -> None:
    hooked = apply_hooks([group("a", 0.0, 2.3), group("b", float("nan"), 1.0)], Hooks())
    assert [[i.reward for i in g.items] for g in hooked.groups] == [[0.0, 2.3], [1.0]]
    assert (hooked.items_filtered, hooked.groups_invalid) == (1, 0)
    assert hooked.meta_info["groups"] == 2.0


def test_a_group_that_filter_item_left_too_few_sessions_of_is_dropped_and_counted() -> None:
    few = group("a", 1.0, 0.1, 0.1, 0.1)
    enough = group("b", 1.0, 1.0, 1.0, 0.1)
    twice = replace(few, group_id="c", items=(*few.items, replace(item("c9", 1.0), session_id="s-a0")))
    hooked = apply_hooks([few, enough, twice], replace(Hooks(), filter_item=drop_low), min_item_ratio=0.5)
    assert [g.group_id for g in hooked.groups] == ["b"]
    assert (hooked.groups_too_small, hooked.groups_invalid, hooked.items_filtered) == (2, 0, 7)
    assert hooked.without == dict.fromkeys(["a0", "c9"], Skip.TOO_FEW_ITEMS)


def test_a_group_that_lost_all_items_is_dropped_and_counted() -> None:
    hooked = apply_hooks([group("a", float("inf")), group("b", 1.0)], Hooks())
    assert [g.group_id for g in hooked.groups] == ["b"]
    assert hooked.groups_invalid == 1


def test_hooks_are_replaced_by_import_path_and_raw_rewards_survive() -> None:
    path = f"{__name__}:drop_low"
    hooks = replace(Hooks(), filter_item=drop_low, normalize_group_data=double)
    hooked = apply_hooks([group("a", 0.1, 0.3, 1.0)], hooks)
    assert [(i.reward, i.raw_reward) for i in hooked.groups[0].items] == [(0.6, 0.3), (2.0, 1.0)]
    assert ":" in path
    loaded = load_hooks({"normalize_group_data": "weir.trainer.hooks:shuffle_rewards"})
    assert loaded.normalize_group_data is shuffle_rewards


def test_a_hook_that_rewrites_raw_rewards_is_named() -> None:
    with pytest.raises(TrainerUsageError, match=r"raw reward 9\.0"):
        apply_hooks([group("a", 0.1)], replace(Hooks(), normalize_group_data=rewrite_raw))


def test_a_wrong_import_path_says_which_form_works() -> None:
    with pytest.raises(TrainerUsageError, match=r"pkg\.mod:name"):
        load_hooks({"filter_item": "weir.trainer.nowhere:keep"})


def test_shuffled_rewards_are_the_same_rewards_on_every_run() -> None:
    shuffled = shuffle_rewards(group("a", 0.0, 0.1, 0.3, 1.0))
    assert sorted(i.reward for i in shuffled.items) == [0.0, 0.1, 0.3, 1.0]
    assert [i.reward for i in shuffled.items] != [i.raw_reward for i in shuffled.items]
    assert shuffle_rewards(group("a", 0.0, 0.1, 0.3, 1.0)) == shuffled


def raises(given: object) -> bool:
    raise RuntimeError("boom\nin two lines")


def exits(given: object) -> bool:
    raise SystemExit(0)


async def asks_later(given: object) -> bool:
    return True


def reward_by_force(given: Group) -> Group:
    for item in given.items:
        object.__setattr__(item, "raw_reward", 9.0)
    return given


@pytest.mark.parametrize("name", [one.name for one in fields(Hooks)])
def test_a_hook_that_raises_is_named_in_a_line_with_its_place(name: Any) -> None:
    message = rf"^the hook {name} raised RuntimeError: boom in two lines \(test_hooks.py line \d+\); fix it"
    with pytest.raises(TrainerUsageError, match=message):
        apply_hooks([group("a", 0.1)], replace(Hooks(), **{name: raises}))
    with pytest.raises(TrainerUsageError, match=f"^the hook {name} raised SystemExit: 0"):
        apply_hooks([group("a", 0.1)], replace(Hooks(), **{name: exits}))


@pytest.mark.filterwarnings("ignore:coroutine")
def test_an_invalid_result_of_a_hook_is_an_error_that_names_it() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        (
            {"filter_item": lambda item: None},
            r"the hook filter_item returned None \(NoneType\), expected True",
        ),
        ({"filter_item": asks_later}, r"the hook filter_item returned <coroutine .*\(coroutine\)"),
        ({"is_valid_group": lambda one: "no"}, r"the hook is_valid_group returned 'no' \(str\)"),
        ({"normalize_group_data": lambda one: replace(one, items=("x",))}, "return a Group of GroupItems"),
        ({"normalize_group_data": reward_by_force}, "the raw reward 9.0, it was given 0.1"),
    ]
    for hooks, message in wrong:
        with pytest.raises(TrainerUsageError, match=message):
            apply_hooks([group("a", 0.1)], replace(Hooks(), **hooks))


def test_a_numpy_answer_of_a_filter_is_one() -> None:
    hooked = apply_hooks(
        [group("a", 0.1, 1.0)], replace(Hooks(), filter_item=lambda item: np.float32(item.reward) > 0.5)
    )
    assert [item.reward for item in hooked.groups[0].items] == [1.0]
