"""The five hooks between judging and advantages, each replaceable by an import path "pkg.mod:name".

They run in this order: `get_group_data_meta_info` over all groups, `filter_item` for each item, then `is_valid_group`,
`normalize_group_data` and `pad_group_data` for each group. Hooks may shape `GroupItem.reward` and drop items or groups;
they may not change `raw_reward` or copy an item. A call whose reward a hook made NaN, infinite or larger in magnitude
than 1e30 is excluded from training alone. The defaults drop nothing but rewards that are not finite.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from weir.trainer.errors import TrainerUsageError
from weir.trainer.import_path import import_function, in_a_line
from weir.trainer.settings.config import HookName
from weir.trainer.settings.reward_terms import LARGEST
from weir.trainer.skip import Skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupItem:
    """One judged call.

    Attributes:
        session_id: The session of the call.
        call_id: The call.
        parent_call: The call that it continues; None at the root of a session's tree.
        turn: Index of the call among the session's answers, from 0.
        reward: The reward that advantages are computed from; hooks may change it.
        raw_reward: The weighted sum of `rewards` as the sources gave them, without bounds and penalties.
        rewards: Value of each named reward, unweighted.
        compiled: Whether the kernel compiled; None without kernel evaluation.
        correct: Whether the kernel was correct; None without kernel evaluation.
        fault: Name of the kernel's fault; None without a fault or without kernel evaluation.
    """

    session_id: str
    call_id: str
    parent_call: str | None
    turn: int
    reward: float
    raw_reward: float
    rewards: Mapping[str, float]
    compiled: bool | None
    correct: bool | None
    fault: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The judged calls of one task.

    Attributes:
        group_id: The group.
        group_size: Number of sessions registered for the group, of which some may have no judged call.
        items: The calls, session by session, each session in the order of its calls.
    """

    group_id: str
    group_size: int
    items: tuple[GroupItem, ...]


def get_group_data_meta_info(groups: Sequence[Group]) -> dict[str, float]:
    """Compute metrics over all judged groups, before anything is dropped.

    Returns:
        Numbers by name, for the round's metric `meta_info`.
    """
    rewards = [item.raw_reward for group in groups for item in group.items]
    return {
        "groups": float(len(groups)),
        "items": float(len(rewards)),
        "raw_reward_mean": statistics.fmean(rewards) if rewards else 0.0,
    }


def filter_item(item: GroupItem) -> bool:
    """Whether to keep an item. The default keeps every finite reward."""
    return math.isfinite(item.reward)


def is_valid_group(group: Group) -> bool:
    """Whether to keep a group. The default keeps every group that has an item."""
    return len(group.items) > 0


def normalize_group_data(group: Group) -> Group:
    """Shape the rewards of a group. The default returns it unchanged: advantages are normalised within the group."""
    return group


def pad_group_data(group: Group) -> Group:
    """Complete a group that lost items. The default returns it unchanged: a copied item would count twice."""
    return group


def shuffle_rewards(group: Group) -> Group:
    """A `normalize_group_data` for control runs: permutes the group's rewards, seeded by the group's id."""
    rewards = [item.reward for item in group.items]
    random.Random(group.group_id).shuffle(rewards)
    items = tuple(replace(item, reward=reward) for item, reward in zip(group.items, rewards, strict=True))
    return replace(group, items=items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """The five hooks of a round; an attribute that is not given is the default hook of its name."""

    get_group_data_meta_info: Callable[[Sequence[Group]], Mapping[str, float]] = field(default=get_group_data_meta_info)
    filter_item: Callable[[GroupItem], bool] = field(default=filter_item)
    is_valid_group: Callable[[Group], bool] = field(default=is_valid_group)
    normalize_group_data: Callable[[Group], Group] = field(default=normalize_group_data)
    pad_group_data: Callable[[Group], Group] = field(default=pad_group_data)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookedGroups:
    """The result of the hooks.

    Attributes:
        groups: The remaining groups, with items whose rewards are finite and at most 1e30 in magnitude.
        meta_info: The numbers of `get_group_data_meta_info`.
        items_filtered: Number of items that `filter_item` dropped.
        groups_invalid: Number of groups that `is_valid_group` dropped.
        groups_too_small: Number of groups of which `filter_item` left too few items.
        without: Calls whose shaped reward cannot be trained on, with the reason.
    """

    groups: list[Group]
    meta_info: dict[str, float]
    items_filtered: int
    groups_invalid: int
    without: dict[str, Skip]
    groups_too_small: int = 0


def load_hooks(paths: Mapping[HookName, str]) -> Hooks:
    """Load the hooks named by import paths; the others are the defaults.

    Raises:
        TrainerUsageError: A path cannot be imported or names nothing callable.
    """
    return replace(Hooks(), **{name: import_function(path) for name, path in paths.items()})


def apply_hooks(groups: Sequence[Group], hooks: Hooks, *, min_item_ratio: float = 0.0) -> HookedGroups:
    """Run the five hooks over judged groups.

    Groups are dropped of which `filter_item` leaves fewer sessions than `min_item_ratio` times their size.

    Raises:
        TrainerUsageError: A hook raises, returns a value of a wrong type, changes a `raw_reward`, copies an item, or
            changes the list of groups that it got.
    """
    raw = {item.call_id: item.raw_reward for group in groups for item in group.items}
    meta_info = _meta_info(groups, hooks)
    filtered = [
        replace(g, items=tuple(item for item in g.items if _is_kept("filter_item", hooks.filter_item, item)))
        for g in groups
    ]
    large = [group for group in filtered if _num_sessions(group) >= min_item_ratio * group.group_size]
    small = [group for group in filtered if _num_sessions(group) < min_item_ratio * group.group_size]
    valid = [group for group in large if _is_kept("is_valid_group", hooks.is_valid_group, group)]
    shaped = [_shaped(group, hooks) for group in valid]
    _check_raw_rewards(raw, shaped)
    _check_copies(shaped)
    held = [replace(g, items=tuple(item for item in g.items if abs(item.reward) <= LARGEST)) for g in shaped]
    trained = {item.call_id for group in held for item in group.items}
    others = [item.call_id for group in shaped for item in group.items if item.call_id not in trained]
    return HookedGroups(
        groups=held,
        meta_info=meta_info,
        items_filtered=sum(len(g.items) for g in groups) - sum(len(g.items) for g in filtered),
        groups_invalid=len(large) - len(valid),
        groups_too_small=len(small),
        without=dict.fromkeys(others, Skip.REWARD_NOT_FINITE)
        | {item.call_id: Skip.TOO_FEW_ITEMS for group in small for item in group.items},
    )


def _num_sessions(group: Group) -> int:
    return len({item.session_id for item in group.items})


def _call(name: HookName, hook: Callable[[Any], Any], argument: object) -> Any:
    """The result of a hook. Raises `TrainerUsageError` where it raises anything."""
    try:
        return hook(argument)
    except (Exception, SystemExit) as error:  # users' code
        raise TrainerUsageError(
            f"the hook {name} raised {in_a_line(error)}; fix it and run `weir round` again: the round stays open"
        ) from error


def _is_kept(name: HookName, hook: Callable[[Any], Any], argument: GroupItem | Group) -> bool:
    kept = _call(name, hook, argument)
    if not isinstance(kept, bool | np.bool_):
        raise TrainerUsageError(
            f"the hook {name} returned {kept!r:.80} ({type(kept).__name__}), expected True or False"
        )
    return bool(kept)


def _shaped(group: Group, hooks: Hooks) -> Group:
    normalized = _call("normalize_group_data", hooks.normalize_group_data, group)
    return _with_numbers(_call("pad_group_data", hooks.pad_group_data, normalized))


def _meta_info(groups: Sequence[Group], hooks: Hooks) -> dict[str, float]:
    argument = list(groups)
    figures = _call("get_group_data_meta_info", hooks.get_group_data_meta_info, argument)
    if [id(group) for group in argument] != [id(group) for group in groups]:
        raise TrainerUsageError(
            f"the hook get_group_data_meta_info changed the list of groups that it got ({len(groups)} groups, then "
            f"{len(argument)}); it only returns figures: filter_item and is_valid_group drop items and groups"
        )
    if not isinstance(figures, Mapping):
        raise TrainerUsageError(f"the hook get_group_data_meta_info returned {figures!r:.80}, expected figures by name")
    return {
        str(name): _number(value, f"the hook get_group_data_meta_info returned for {name}")
        for name, value in figures.items()
    }


def _with_numbers(group: Group) -> Group:
    """The group with its rewards as floats; hooks may return other kinds of numbers."""
    if not (
        isinstance(group, Group)
        and isinstance(group.items, Sequence)
        and all(isinstance(item, GroupItem) for item in group.items)
    ):
        raise TrainerUsageError(
            f"a hook returned {group!r:.80}; normalize_group_data and pad_group_data return a Group of GroupItems"
        )
    named = ((item, f"a hook gave call {item.call_id} the reward") for item in group.items)
    return replace(group, items=tuple(replace(item, reward=_number(item.reward, what)) for item, what in named))


def _number(value: Any, what: str) -> float:
    """A value as a float; infinite beyond the range of floats."""
    try:
        return float(value.__float__())
    except OverflowError:
        return math.inf
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise TrainerUsageError(f"{what} {value!r:.80} ({type(value).__name__}), expected a number") from error


def _check_raw_rewards(raw: Mapping[str, float], after: Sequence[Group]) -> None:
    for item in (item for group in after for item in group.items):
        known = raw.get(item.call_id)
        if known is None or (item.raw_reward != known and not math.isnan(known)):
            raise TrainerUsageError(
                f"a hook gave call {item.call_id} the raw reward {item.raw_reward}, it was given {known}; "
                "hooks shape `reward` and leave `raw_reward` alone"
            )


def _check_copies(groups: Sequence[Group]) -> None:
    times = Counter(item.call_id for group in groups for item in group.items)
    for call_id, count in times.items():
        if count > 1:
            raise TrainerUsageError(
                f"after the hooks call {call_id} is in the groups {count} times, and each copy would count in its "
                "group's mean; groups may be of any size: leave a short one as it is"
            )
