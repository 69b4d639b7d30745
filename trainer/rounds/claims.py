"""Claims groups for a round, and pins everything that its weights depend on in a manifest.

Invariant: parent version, seed, settings, groups and the calls of each session are in the round's manifest. It is
written in the transaction that claims the groups, and copied to `<root>/rounds/<8 digits>/manifest.json` for readers. A
claimed round is resumed from its manifest and never claimed again.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from weir.kernel_eval.client import KernelTask
from weir.store.atomic_file import written_aside
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.leases import Lease
from weir.store.clock import now_us
from weir.store.config import StoreConfig
from weir.store.reader import StoredCall, load_calls
from weir.trainer.errors import RoundError
from weir.trainer.rewards.stored import StoredRewards, joined_rewards
from weir.trainer.rounds.group_selection import Choice, ChosenGroup, choose_groups
from weir.trainer.rounds.vocabulary_check import check_vocabulary
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.pinning import config_hash
from weir.trainer.versions.stored import make_whole
from weir.trainer.versions.version_folder import (
    MANIFEST,
    list_versions,
    read_manifest,
    round_folder,
    version_path,
)

SCHEMA = 1
CONFIG = "config.json"  # of a Hugging Face folder


class ClaimedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One group of a round, with the calls that its sessions had when it was claimed."""

    group_id: str
    group_size: int
    task: KernelTask | None
    calls: dict[str, list[str]]  # session → calls in the order of their start


class ClaimedRound(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of a round."""

    schema: int = SCHEMA
    round: int
    version: int  # the version that it makes
    parent: int
    parent_path: str
    seed: int
    config: dict[str, Any]  # the pinned settings
    config_hash: str
    groups: list[ClaimedGroup]
    expired: list[str] = []  # groups whose calls are all too old: consumed without judging
    surplus: list[str] = []  # the oldest groups beyond max_buffer_size: consumed without judging
    unversioned: int = 0  # groups left out because a version of theirs is no integer; they stay unclaimed
    mixed_rows: str | None = None  # sha256 of the supervised rows that are mixed in
    stored_rewards: StoredRewards = {}  # the store's rewards at the claim, where the settings use them
    created_us: int

    @property
    def group_ids(self) -> list[str]:
        """The consumed groups."""
        return [*(group.group_id for group in self.groups), *self.expired, *self.surplus]


PinnedCalls = dict[str, list[StoredCall]]  # the calls of each claimed group, session by session


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRound:
    """A round that can be claimed, and the calls that were read to choose its groups."""

    claimed: ClaimedRound
    calls: PinnedCalls


def continue_round(catalog: Catalog, root: Path) -> ClaimedRound | None:
    """The round that was claimed and not committed, if there is one. Raises `RoundError` for a damaged manifest."""
    row = catalog.open_round()
    if row is None:
        return None
    claimed = msgspec.convert(row.manifest, ClaimedRound)
    if config_hash(claimed.config) != claimed.config_hash:
        raise RoundError(f"the manifest of round {claimed.round} in the catalog does not match its own config hash")
    _write_copy(root, claimed)
    return claimed


def plan_round(
    catalog: Catalog,
    store: StoreConfig,
    config: TrainerConfig,
    *,
    parent: int,
    parent_path: Path,
    on_left_out: Callable[[Choice], None],
    among: Container[str] | None = None,
) -> PlannedRound | None:
    """The round that would be claimed now, or None when no group is ready. Changes nothing.

    `on_left_out` gets the choice, to report the groups that it leaves out; `among` names groups, others are not looked
    at. Raises `TrainerUsageError` where calls were
    recorded with another vocabulary than the parent's.
    """
    choice = choose_groups(catalog, store, config, parent=parent, among=among)
    on_left_out(choice)
    if len(choice.groups) < config.min_groups:
        return None
    calls = {
        group.row.group_id: [call for of_one in group.calls.values() for call in of_one] for group in choice.groups
    }
    check_vocabulary((call for of_group in calls.values() for call in of_group), parent_path)
    pinned = config.pinned()
    versions = [row.version for row in catalog.versions()] + [v.manifest.version for v in list_versions(store.folder)]
    claimed = ClaimedRound(
        round=max((row.round_id for row in catalog.rounds()), default=0) + 1,
        version=max([*versions, parent]) + 1,
        parent=parent,
        parent_path=str(parent_path.absolute()),
        seed=config.seed,
        config=pinned,
        config_hash=config_hash(pinned),
        groups=[_pin(group) for group in choice.groups],
        expired=choice.expired,
        surplus=choice.surplus,
        unversioned=len(choice.unversioned),
        stored_rewards=joined_rewards([group.rewards for group in choice.groups]),
        created_us=now_us(),
    )
    return PlannedRound(claimed=claimed, calls=calls)


def claim(catalog: Catalog, root: Path, planned: ClaimedRound, lease: Lease) -> None:
    """Claim the groups: from here on they belong to the round, also after a crash.

    Raises `LeaseLost`, and `RoundConflict` where a call of them was lost since they were chosen.
    """
    session_ids = [session_id for group in planned.groups for session_id in group.calls]
    catalog.claim_groups(planned.round, planned.group_ids, msgspec.to_builtins(planned), lease, session_ids=session_ids)
    _write_copy(root, planned)


def parent_folder(root: Path, claimed: ClaimedRound, model_path: Path) -> Path:
    """The folder of a round's parent on this machine, which need not be the machine that claimed the round.

    It is made whole if it is stored as a difference. Raises `RoundError` where it is missing: no other weights replace
    it; and `VersionError` where it cannot be rebuilt.
    """
    places = dict.fromkeys((version_path(root, claimed.parent).absolute(), Path(claimed.parent_path)))
    for candidate in (*places, model_path.absolute()):
        if (candidate / CONFIG).exists() and _version_of(candidate) == claimed.parent:
            if (candidate / MANIFEST).exists():
                make_whole(candidate)
            return candidate
    raise RoundError(
        f"round {claimed.round} cannot be resumed: the version {claimed.parent} that it starts from is not in "
        f"{' nor in '.join(map(str, places))}; restore its folder from a copy"
    )


def _version_of(folder: Path) -> int:
    """The version in a folder's manifest; first weights without one are version 0."""
    return read_manifest(folder).version if (folder / MANIFEST).exists() else 0


def pinned_calls(store: StoreConfig, claimed: ClaimedRound, config: TrainerConfig) -> PinnedCalls:
    """The claimed calls of each group, from the store, with what the round's own settings need of them.

    Raises `RoundError` where one is missing.
    """
    sessions = [session_id for group in claimed.groups for session_id in group.calls]
    stored = load_calls(store, sessions, routed_experts=config.continuing(claimed.config).routing_replay)
    found = {call.call_id: call for calls in stored.values() for call in calls}
    return {group.group_id: _pinned_calls(group, found) for group in claimed.groups}


def _pinned_calls(group: ClaimedGroup, found: dict[str, StoredCall]) -> list[StoredCall]:
    wanted = [call_id for call_ids in group.calls.values() for call_id in call_ids]
    if missing := [call_id for call_id in wanted if call_id not in found]:
        raise RoundError(
            f"group {group.group_id} was claimed with call {missing[0]}, which the store no longer has; "
            "restore the store's files from a copy"
        )
    return [found[call_id] for call_id in wanted]


def _pin(group: ChosenGroup) -> ClaimedGroup:
    return ClaimedGroup(
        group_id=group.row.group_id,
        group_size=group.size,
        task=group.task,
        calls={session_id: [call.call_id for call in calls] for session_id, calls in group.calls.items()},
    )


def _write_copy(root: Path, claimed: ClaimedRound) -> None:
    folder = round_folder(root, claimed.round)
    if not (folder / MANIFEST).exists():
        folder.mkdir(parents=True, exist_ok=True)
        with written_aside(folder / MANIFEST, durable=True) as aside:
            aside.write_bytes(msgspec.json.format(msgspec.json.encode(claimed)))
