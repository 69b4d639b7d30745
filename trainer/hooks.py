"""The five hooks between judging and advantages, each replaceable by an import path "pkg.mod:name".

They run in this order: `get_group_data_meta_info` over all groups, `filter_item` for each item, then `is_valid_group`,
`normalize_group_data` and `pad_group_data` for each group. Invariant: `raw_reward` is what was said of a call; it
survives every hook, only `reward` may be shaped, and stays a number that can be trained on: a call whose reward a hook
made NaN, infinite or larger than any source may give is left out alone. The defaults drop nothing that was judged: no
copies.
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
    """One judged call."""

    session_id: str
    call_id: str
    parent_call: str | None
    turn: int  # its place among the session's answers, from 0
    reward: float  # what is trained on
    raw_reward: float  # the weighted sum of the rewards as they were given
    rewards: Mapping[str, float]  # by name, as they were given
    compiled: bool | None  # None: there was no kernel evaluation
    correct: bool | None
    fault: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The judged calls of one task, session by session, each session in the order of its calls."""

    group_id: str
    group_size: int  # sessions that the group was to have
    items: tuple[GroupItem, ...]


def get_group_data_meta_info(groups: Sequence[Group]) -> dict[str, float]:
    """Figures over everything that was judged, before anything is dropped; they go into the round's metrics."""
    rewards = [item.raw_reward for group in groups for item in group.items]
    return {
        "groups": float(len(groups)),
        "items": float(len(rewards)),
        "raw_reward_mean": statistics.fmean(rewards) if rewards else 0.0,
    }


def filter_item(item: GroupItem) -> bool:
    """Keep every item whose reward is a finite number, however large."""
    return math.isfinite(item.reward)


def is_valid_group(group: Group) -> bool:
    """Keep every group that still has an item."""
    return len(group.items) > 0


def normalize_group_data(group: Group) -> Group:
    """Shape the rewards of a group: left as they are, since advantages compare within the group anyway."""
    return group


def pad_group_data(group: Group) -> Group:
    """Fill up a group that lost items: not done, since a copied item would count twice."""
    return group


def shuffle_rewards(group: Group) -> Group:
    """A `normalize_group_data` for controls: the group's rewards dealt out at random, the same on every run."""
    rewards = [item.reward for item in group.items]
    random.Random(group.group_id).shuffle(rewards)
    items = tuple(replace(item, reward=reward) for item, reward in zip(group.items, rewards, strict=True))
    return replace(group, items=items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """The hooks of a run."""

    get_group_data_meta_info: Callable[[Sequence[Group]], Mapping[str, float]] = field(default=get_group_data_meta_info)
    filter_item: Callable[[GroupItem], bool] = field(default=filter_item)
    is_valid_group: Callable[[Group], bool] = field(default=is_valid_group)
    normalize_group_data: Callable[[Group], Group] = field(default=normalize_group_data)
    pad_group_data: Callable[[Group], Group] = field(default=pad_group_data)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookedGroups:
    """What is left after the hooks, and how much they dropped."""

    groups: list[Group]
    meta_info: dict[str, float]
    items_filtered: int
    groups_invalid: int
    without: dict[str, Skip]  # calls whose shaped reward cannot be trained on


def load_hooks(paths: Mapping[HookName, str]) -> Hooks:
    """The defaults with those in `paths` replaced. Raises `TrainerUsageError` for a path that names no function."""
    return replace(Hooks(), **{name: import_function(path) for name, path in paths.items()})


def apply_hooks(groups: Sequence[Group], hooks: Hooks) -> HookedGroups:
    """Run the five hooks. Raises `TrainerUsageError` when one of them does what it may not."""
    raw = {item.call_id: item.raw_reward for group in groups for item in group.items}
    meta_info = _meta_info(groups, hooks)
    filtered = [
        replace(g, items=tuple(item for item in g.items if _is_kept("filter_item", hooks.filter_item, item)))
        for g in groups
    ]
    valid = [group for group in filtered if _is_kept("is_valid_group", hooks.is_valid_group, group)]
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
        groups_invalid=len(groups) - len(valid),
        without=dict.fromkeys(others, Skip.REWARD_NOT_FINITE),
    )


def _said(name: HookName, hook: Callable[[Any], Any], given: object) -> Any:
    """What a hook gives back. Raises `TrainerUsageError` where it raises anything."""
    try:
        return hook(given)
    except (Exception, SystemExit) as error:  # users' code
        raise TrainerUsageError(
            f"the hook {name} raised {in_a_line(error)}; mend it and run `weir round` again: the round stays open"
        ) from error


def _is_kept(name: HookName, hook: Callable[[Any], Any], given: GroupItem | Group) -> bool:
    kept = _said(name, hook, given)
    if not isinstance(kept, bool | np.bool_):
        raise TrainerUsageError(f"the hook {name} gave {kept!r:.80} ({type(kept).__name__}), expected True or False")
    return bool(kept)


def _shaped(group: Group, hooks: Hooks) -> Group:
    normalized = _said("normalize_group_data", hooks.normalize_group_data, group)
    return _with_numbers(_said("pad_group_data", hooks.pad_group_data, normalized))


def _meta_info(groups: Sequence[Group], hooks: Hooks) -> dict[str, float]:
    shown = list(groups)
    given = _said("get_group_data_meta_info", hooks.get_group_data_meta_info, shown)
    if [id(group) for group in shown] != [id(group) for group in groups]:
        raise TrainerUsageError(
            f"the hook get_group_data_meta_info changed the list of groups that it was given ({len(groups)} groups, "
            f"then {len(shown)}); it says figures of them: filter_item and is_valid_group drop what is not trained on"
        )
    if not isinstance(given, Mapping):
        raise TrainerUsageError(f"the hook get_group_data_meta_info gave {given!r:.80}, expected figures by name")
    return {
        str(name): _number(value, f"the hook get_group_data_meta_info gave for {name}") for name, value in given.items()
    }


def _with_numbers(group: Group) -> Group:
    """A group with its rewards as floats, also where the hooks had other kinds of numbers."""
    if not (
        isinstance(group, Group)
        and isinstance(group.items, Sequence)
        and all(isinstance(item, GroupItem) for item in group.items)
    ):
        raise TrainerUsageError(
            f"a hook gave {group!r:.80} for a group; normalize_group_data and pad_group_data give a Group of GroupItems"
        )
    named = ((item, f"a hook gave call {item.call_id} the reward") for item in group.items)
    return replace(group, items=tuple(replace(item, reward=_number(item.reward, what)) for item, what in named))


def _number(value: Any, what: str) -> float:
    """A value as a float, infinite where no float holds it."""
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
