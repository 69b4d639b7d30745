"""The five hooks, replaced: each leaves something that a round's figures show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from weir.trainer.hooks import Group, GroupItem


def count_sessions(groups: Sequence[Group]) -> dict[str, float]:
    """A `get_group_data_meta_info`."""
    return {"sessions": float(sum(len({item.session_id for item in group.items}) for group in groups))}


def above_a_tenth(item: GroupItem) -> bool:
    """A `filter_item`."""
    return item.reward > 0.1


def of_three(group: Group) -> bool:
    """An `is_valid_group`."""
    return len(group.items) >= 3


def without_spread(group: Group) -> Group:
    """A `normalize_group_data`."""
    return replace(group, items=tuple(replace(item, reward=1.0) for item in group.items))


def without_the_last(group: Group) -> Group:
    """A `pad_group_data`."""
    return replace(group, items=group.items[:-1])


def with_a_copy(group: Group) -> Group:
    """A `pad_group_data` that fills a group up with copies, as the predecessor's did."""
    return replace(group, items=(*group.items, group.items[0]))


def _first_is(group: Group, reward: Any) -> Group:
    first, *others = group.items
    return replace(group, items=(replace(first, reward=reward), *others))


def with_nan(group: Group) -> Group:
    """A `normalize_group_data` that divides zero by zero."""
    return _first_is(group, math.nan)


def with_infinity(group: Group) -> Group:
    """A `normalize_group_data` that divides by zero."""
    return _first_is(group, math.inf)


def with_a_huge_one(group: Group) -> Group:
    """A `normalize_group_data` whose squares no float holds."""
    return _first_is(group, -1e308)


def with_an_integer_beyond_floats(group: Group) -> Group:
    """A `normalize_group_data` without bounds."""
    return _first_is(group, 10**400)


def with_a_text(group: Group) -> Group:
    """A `normalize_group_data` that read its rewards from a file."""
    return _first_is(group, "0.5")


def with_two(group: Group) -> Group:
    """A `normalize_group_data` that gives an array for a number."""
    return _first_is(group, np.zeros(2))


def nothing(group: Group) -> None:
    """A `pad_group_data` that forgot to return the group."""


def other_numbers(group: Group) -> Group:
    """A `normalize_group_data` that gives numbers of other kinds, and a list."""
    kinds = (np.float32, Fraction, int)
    shaped: Any = [replace(item, reward=kind(item.reward)) for item, kind in zip(group.items, kinds, strict=True)]
    return replace(group, items=shaped)


def clearing(groups: list[Group]) -> dict[str, float]:
    """A `get_group_data_meta_info` that takes the groups away."""
    groups.clear()
    return {}


def of_texts(groups: Sequence[Group]) -> dict[str, Any]:
    """A `get_group_data_meta_info` that gives no figures."""
    return {"judge": object()}
