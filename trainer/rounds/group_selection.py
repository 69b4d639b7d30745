"""Chooses the groups of a round among the ready ones: those that the settings admit, oldest first.

Invariant: nothing is changed here, but that lost calls are noted, and no group is skipped silently for good. A group
that is not chosen stays ready; a group whose calls are all too stale to train on is reported as expired, the oldest
groups beyond `max_buffer_size` as surplus, and the round consumes both without judging; a group that may lack calls,
because the log is damaged or because calls were lost, is reported with the reason, and so is one that was sampled by
weights whose name is no integer: nobody can say how old they are.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

import duckdb
import msgspec

from weir.kernel_eval.client import KernelTask
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.lost_calls import waiting_for_lost_calls
from weir.store.catalog.ready_groups import ready_groups
from weir.store.catalog.rows import GroupRow
from weir.store.clock import now_us
from weir.store.config import StoreConfig
from weir.store.errors import VersionUnknown
from weir.store.maintenance.damage import groups_lacking_calls
from weir.store.query.snapshot import take_snapshot
from weir.store.reader import StoredCall, calls_in, connect
from weir.store.shared.lost_calls import collect_lost_calls
from weir.trainer.credit.samples import is_stale
from weir.trainer.errors import TrainerUsageError
from weir.trainer.rewards.stored import StoredRewards, lacks_rewards, read_rewards, stored_names
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.reward_terms import KERNEL_EVAL

LOST = (
    "{} of its sessions lack calls that were lost (weir sql 'FROM lost_calls') and count as unfinished; a round may "
    "take the others after trainer.group_timeout_s"
)
Eligible = tuple[GroupRow, KernelTask | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenGroup:
    """A ready group that can be judged, with the current rewards and calls of its sessions."""

    row: GroupRow
    task: KernelTask | None
    rewards: StoredRewards
    calls: dict[str, list[StoredCall]]  # session → calls in the order of their start

    @property
    def size(self) -> int:
        """Number of sessions registered for the group."""
        return self.row.group_size or len(self.row.session_ids)


@dataclass(slots=True)
class Choice:
    """The groups that a round would claim, and those that it would not."""

    groups: list[ChosenGroup] = field(default_factory=list)
    expired: list[str] = field(default_factory=list)
    surplus: list[str] = field(default_factory=list)  # the oldest beyond max_buffer_size
    damaged: dict[str, str] = field(default_factory=dict)  # group → why it may lack calls, and the remedy
    unversioned: dict[str, str] = field(default_factory=dict)  # group → which call has a version that is no integer


def choose_groups(
    catalog: Catalog, store: StoreConfig, config: TrainerConfig, *, parent: int, among: Container[str] | None = None
) -> Choice:
    """Up to `groups_per_round` groups, and the expired and surplus ones that are older than the last of them.

    Only groups `among` these are looked at, where some are named.
    A group with a lost call is not complete; after `group_timeout_s` its other sessions may be. Raises
    `TrainerUsageError` when `groups_where` is not a valid condition on the view `groups`.
    """
    collect_lost_calls(store, catalog)
    choice = _among_ready(catalog, store, config, parent, among)
    taken = {*(group.row.group_id for group in choice.groups), *choice.expired, *choice.surplus}
    for group_id, num_sessions in waiting_for_lost_calls(catalog).items():
        if group_id not in taken:
            choice.damaged.setdefault(group_id, LOST.format(num_sessions))
    return choice


def _among_ready(
    catalog: Catalog, store: StoreConfig, config: TrainerConfig, parent: int, among: Container[str] | None
) -> Choice:
    choice = Choice()
    every = ready_groups(catalog, timeout_s=config.group_timeout_s, min_size_ratio=config.min_timeout_group_size_ratio)
    ready = (row for row in every if among is None or row.group_id in among)
    eligible = _to_train_on(ready, needs_task=KERNEL_EVAL in config.reward_terms)
    too_many = 0
    if config.max_buffer_size is not None:
        everything = _passing(store, config.groups_where, list(eligible))
        too_many = sum(len(group.session_ids) for group, _ in everything) - config.max_buffer_size
        eligible = iter(everything)
    for part in _parts(eligible, config.groups_per_round):
        passing = _passing(store, config.groups_where, part)
        loaded, damaged, unversioned = _read_calls([group for group, _ in passing], catalog, store, config)
        choice.damaged |= damaged
        choice.unversioned |= unversioned
        left_out = damaged.keys() | unversioned.keys()
        whole = [(group, task) for group, task in passing if group.group_id not in left_out]
        for group in _with_rewards(whole, loaded, catalog, config):
            if too_many > 0:
                choice.surplus.append(group.row.group_id)
                too_many -= len(group.calls)
            elif _is_expired(group, parent, config.max_staleness):
                choice.expired.append(group.row.group_id)
            elif not _waits_for_rewards(group, config):
                choice.groups.append(group)
            if len(choice.groups) == config.groups_per_round:
                return choice
    return choice


def _to_train_on(groups: Iterable[GroupRow], *, needs_task: bool) -> Iterator[Eligible]:
    """The groups that are not held out and, where kernel evaluation needs one, have a kernel task."""
    for group in groups:
        task: KernelTask | None = None
        with suppress(msgspec.ValidationError):
            task = msgspec.convert(group.task, KernelTask)
        held_out = isinstance(group.task, dict) and group.task.get("split") == "heldout"
        if not held_out and (task is not None or not needs_task):
            yield group, task


def _parts(groups: Iterator[Eligible], size: int) -> Iterator[list[Eligible]]:
    while part := list(islice(groups, size)):
        yield part


def _passing(store: StoreConfig, where: str | None, groups: Sequence[Eligible]) -> list[Eligible]:
    if where is None:
        return list(groups)
    query = f"SELECT group_id FROM groups WHERE group_id IN (SELECT unnest($1)) AND ({where})"
    try:
        with connect(store) as connection:
            found = connection.execute(query, [[group.group_id for group, _ in groups]]).fetchall()
    except duckdb.Error as error:
        raise TrainerUsageError(
            f"trainer.groups_where = {where!r} is no valid condition on the view groups: {error}; docs/sql.md has its "
            "columns"
        ) from error
    passing = {group_id for (group_id,) in found}
    return [(group, task) for group, task in groups if group.group_id in passing]


def _read_calls(
    groups: Sequence[GroupRow], catalog: Catalog, store: StoreConfig, config: TrainerConfig
) -> tuple[dict[str, list[StoredCall]], dict[str, str], dict[str, str]]:
    """The calls of each session, and with reasons the groups that may have more, and those of unknown versions."""
    unknown: dict[str, VersionUnknown] = {}
    sessions = [session_id for group in groups for session_id in group.session_ids]
    snapshot = take_snapshot(store, catalog=catalog, sessions=sessions)
    try:
        loaded = calls_in(snapshot, sessions, unknown, routed_experts=config.routing_replay)
    finally:
        snapshot.pin.release()
    unversioned = {
        group.group_id: str(unknown[name]) for group in groups for name in group.session_ids if name in unknown
    }
    known = {
        group.group_id: {name: {call.call_id for call in loaded[name]} for name in group.session_ids}
        for group in groups
        if group.group_id not in unversioned
    }
    return loaded, groups_lacking_calls(store, catalog, snapshot.unread, known), unversioned


def _with_rewards(
    groups: Sequence[Eligible], loaded: Mapping[str, list[StoredCall]], catalog: Catalog, config: TrainerConfig
) -> Iterator[ChosenGroup]:
    names = stored_names(config.reward_terms)
    for group, task in groups:
        calls = {name: loaded[name] for name in group.session_ids}
        rewards = read_rewards(catalog, names, calls, every_branch=config.credit == "trajectory")
        yield ChosenGroup(row=group, task=task, calls=calls, rewards=rewards)


def _is_expired(group: ChosenGroup, parent: int, max_staleness: int) -> bool:
    sampled = [call for calls in group.calls.values() for call in calls if len(call.versions)]
    return bool(sampled) and all(is_stale(call, parent, max_staleness) for call in sampled)


def _waits_for_rewards(group: ChosenGroup, config: TrainerConfig) -> bool:
    """Whether a stored reward is missing and may still come; after `group_timeout_s` none is expected."""
    if not lacks_rewards(group.rewards, group.calls):
        return False
    last_us = max(call.finished_us for calls in group.calls.values() for call in calls)
    return config.group_timeout_s is None or now_us() - last_us < config.group_timeout_s * 1e6
