"""Which of the ready groups a round takes: those with a kernel task that pass the settings' filter, oldest first.

Invariant: nothing is changed here, and no group is passed over silently for good: what is not taken stays ready, and a
group whose calls are all too old to be trained on is given as expired, for the round to consume without judging it.
Not here: when a group is ready (`store/catalog_ready.py`), and taking it (`claims.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import duckdb
import msgspec

from weir.kernel_eval.client import KernelTask
from weir.store.catalog import Catalog
from weir.store.catalog_ready import ready_groups
from weir.store.catalog_rows import GroupRow
from weir.store.config import StoreConfig
from weir.store.reader import StoredCall, connect, load_calls
from weir.trainer.config import TrainerConfig
from weir.trainer.errors import TrainerUsageError
from weir.trainer.samples import is_stale


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenGroup:
    """A ready group that can be judged, with the calls that its sessions have now."""

    row: GroupRow
    task: KernelTask
    calls: dict[str, list[StoredCall]]  # session → calls in the order of their start

    @property
    def size(self) -> int:
        """Sessions that the group was to have."""
        return self.row.group_size or len(self.row.session_ids)


@dataclass(slots=True)
class Choice:
    """What a round would take."""

    groups: list[ChosenGroup] = field(default_factory=list)
    expired: list[str] = field(default_factory=list)


def choose_groups(catalog: Catalog, store: StoreConfig, config: TrainerConfig, *, parent: int) -> Choice:
    """Up to `groups_per_round` groups, and the expired ones that were met on the way to them.

    Raises `TrainerUsageError` when `groups_where` is no condition on the view `groups`.
    """
    choice = Choice()
    ready = ready_groups(catalog, timeout_s=config.group_timeout_s, min_size_ratio=config.min_timeout_group_size_ratio)
    for part in _parts(_with_kernel_task(ready), config.groups_per_round):
        for group in _loaded(store, _passing(store, config.groups_where, part)):
            if _is_expired(group, parent, config.max_staleness):
                choice.expired.append(group.row.group_id)
            else:
                choice.groups.append(group)
            if len(choice.groups) == config.groups_per_round:
                return choice
    return choice


def _with_kernel_task(groups: Iterable[GroupRow]) -> Iterator[tuple[GroupRow, KernelTask]]:
    """The groups to train on; held-out ones are for measuring, others wait for somebody who can judge them."""
    for group in groups:
        try:
            task = msgspec.convert(group.task, KernelTask)
        except msgspec.ValidationError:
            continue
        if task.split != "heldout":
            yield group, task


def _parts(groups: Iterator[tuple[GroupRow, KernelTask]], size: int) -> Iterator[list[tuple[GroupRow, KernelTask]]]:
    while part := list(islice(groups, size)):
        yield part


def _passing(
    store: StoreConfig, where: str | None, groups: Sequence[tuple[GroupRow, KernelTask]]
) -> list[tuple[GroupRow, KernelTask]]:
    if where is None:
        return list(groups)
    query = f"SELECT group_id FROM groups WHERE group_id IN (SELECT unnest($1)) AND ({where})"
    try:
        with connect(store) as connection:
            found = connection.execute(query, [[group.group_id for group, _ in groups]]).fetchall()
    except duckdb.Error as error:
        raise TrainerUsageError(
            f"trainer.groups_where = {where!r} is no condition on the view groups: {error}; docs/sql.md has its columns"
        ) from error
    passing = {group_id for (group_id,) in found}
    return [(group, task) for group, task in groups if group.group_id in passing]


def _loaded(store: StoreConfig, groups: Sequence[tuple[GroupRow, KernelTask]]) -> Iterator[ChosenGroup]:
    calls = load_calls(store, [session_id for group, _ in groups for session_id in group.session_ids])
    for group, task in groups:
        yield ChosenGroup(row=group, task=task, calls={name: calls[name] for name in group.session_ids})


def _is_expired(group: ChosenGroup, parent: int, max_staleness: int) -> bool:
    sampled = [call for calls in group.calls.values() for call in calls if len(call.versions)]
    return bool(sampled) and all(is_stale(call, parent, max_staleness) for call in sampled)
