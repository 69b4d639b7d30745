"""The five hooks, replaced: each leaves something that a round's figures show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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
