"""One training round, from claimed groups to served weights: `Trainer.run_round` reads top to bottom.

Invariant: the rename that makes the version folder appear is the one moment at which a round has happened. A round
killed before it resumes from its manifest and yields the same bits; for one killed after it, the remaining steps
(catalog, publishing, metrics) are repeated from the folder and change nothing that was done.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Container, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace
from rich.console import Console

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.devices.switches import let_go
from weir.store.catalog.leases import Lease, renew_lease
from weir.store.catalog.ready_groups import count_ready
from weir.store.config import StoreConfig
from weir.store.errors import StoreUnavailable
from weir.trainer.errors import TrainerError
from weir.trainer.lease import round_turn
from weir.trainer.publishing.catalog_entries import enter_version, serve
from weir.trainer.publishing.publish import PublishReport
from weir.trainer.publishing.switch import Member, switch
from weir.trainer.rounds.adopt import adopt
from weir.trainer.rounds.claims import (
    ClaimedRound,
    PinnedCalls,
    PlannedRound,
    claim,
    continue_round,
    parent_folder,
    pinned_calls,
    plan_round,
)
from weir.trainer.rounds.finish import RoundFinisher
from weir.trainer.rounds.fit import require_room
from weir.trainer.rounds.group_selection import Choice, choose_groups
from weir.trainer.rounds.kept_tokens import keep_tokens
from weir.trainer.rounds.loaded_backend import LoadedBackend
from weir.trainer.rounds.metrics import METRICS_FILE, Metrics, speed_metrics, step_metrics, times_so_far
from weir.trainer.rounds.parent_weights import check_content, newest_parent
from weir.trainer.rounds.preflight import check_lora_base, check_settings
from weir.trainer.rounds.prejudge import JudgingAhead
from weir.trainer.rounds.prepare import RoundData, prepare
from weir.trainer.rounds.replay import Replay, replay_round
from weir.trainer.rounds.restored_state import lacks_state, restored
from weir.trainer.rounds.rollback import roll_back
from weir.trainer.rounds.supervised_mix import MixedData
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.timings import RoundTimes
from weir.trainer.versions.object_store import fetch_newest
from weir.trainer.versions.stored import base_of_next
from weir.trainer.versions.version_folder import (
    MANIFEST,
    FileEntry,
    Version,
    current_version,
    num_parameters,
    read_manifest,
    version_path,
    write_version,
)

if TYPE_CHECKING:
    from weir.trainer.backend import Backend
    from weir.trainer.data.chat_rows import ChatRenderer


DEVICES = "round"  # the name of a round's devices in the catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReport:
    """The outcome of one round."""

    round: int
    version: int
    path: Path  # the version folder
    metrics: Metrics
    published: PublishReport
    seconds: dict[str, float]  # wall time by step; time between steps is in none


class Trainer:
    """Rounds over one store.

    `renderer` opens the renderer for supervised conversations; `on_step` gets the name of each step once it is done;
    `serve` brings versions to engines, unless another process does.
    """

    def __init__(
        self,
        config: TrainerConfig,
        store: StoreConfig,
        *,
        model_path: Path,
        renderer: Callable[[], ChatRenderer] | None = None,
        console: Console | None = None,
        on_step: Callable[[str], None] = lambda _: None,
        serve: Callable[..., PublishReport] = serve,
    ) -> None:
        self.config = config
        self.store = store
        self.model_path = model_path
        self.console = console or Console(quiet=True)
        self.on_step = on_step
        self._serve = serve
        self.mixed = MixedData(model_path, renderer)
        self.catalog = Catalog.open(store)
        self._backend = LoadedBackend(model_path, store.folder)
        self._devices: Member | None = None
        if config.takes_turns:
            self._devices = Member(
                name=DEVICES,
                config=config,
                store=store,
                catalog=self.catalog,
                state=self._backend,
                console=self.console,
            )
        self.noted: Metrics = {}  # further metrics of the next round
        self._ahead: JudgingAhead | None = None
        self._said_defaults = False
        self._reported: set[str] = set()  # groups that were printed as left out

    @property
    def comes_back(self) -> bool:
        """Whether a further round may follow: then training state is kept while engines have its place."""
        return self._backend.stays

    @comes_back.setter
    def comes_back(self, value: bool) -> None:
        self._backend.stays = value

    def close(self) -> None:
        """Stop judging ahead, end the backend's processes and close the catalog. May be called twice."""
        if self._ahead is not None:
            self._ahead.close()
        self._backend.forget()
        self.catalog.close()

    def load_ahead(self) -> None:
        """Load the newest weights and optimiser state as the next round would, unless engines have the devices."""
        _, path = newest_parent(self.catalog, self.store.folder, self.model_path)
        config = self.config.with_defaults(lambda: num_parameters(path))
        lacks = config.keep_state_every > 1 and lacks_state(path)
        if self._devices is None and not lacks and not self._backend.is_at(path, config):
            check_content(path)
            self._backend.at(path, config)

    def run_round(self, *, wait: bool = False, among: Container[str] | None = None) -> RoundReport | None:
        """Finish what an earlier process left, then train one round; None when no group, `among` these, is ready.

        Raises `RoundBusy` when another process trains over this store and `wait` is false, `LeaseLost` when another one
        took over the round because this one stalled, `JudgeUnavailable` when kernel evaluation is unavailable,
        `PublishFailed` when no engine took the version; calling again resumes where it stopped.
        """
        times = RoundTimes()
        with round_turn(self.catalog, self.store, wait=wait, lease_s=self.config.lease_s) as lease:
            with times.step("look_back"):
                if self._devices is not None and self._devices.side == "rollout":
                    let_go(self.catalog, DEVICES)  # of a process that was killed: the lease for rounds is ours
                fetch_newest(self.store)
                self._finisher.finish_interrupted(lease)
            planned = self._resumed(times) or self._claimed(lease, times, among)
            return None if planned is None else self._run(planned.claimed, planned.calls, lease, times)

    def plan(self) -> ClaimedRound | None:
        """The round that `run_round` would work on. Changes nothing."""
        row = self.catalog.open_round()
        if row is not None:
            return continue_round(self.catalog, self.store.folder)
        if current_version(self.store.folder) is None:
            fetch_newest(self.store)
        parent, path = newest_parent(self.catalog, self.store.folder, self.model_path)
        planned = self._planned(parent, path)
        return None if planned is None else planned.claimed

    def ready(self) -> Choice:
        """The groups that a new round would find now, even if they are fewer than it needs. Changes nothing."""
        parent, _ = newest_parent(self.catalog, self.store.folder, self.model_path)
        return choose_groups(self.catalog, self.store, self.config, parent=parent)

    def publish(self, folder: Path) -> PublishReport:
        """Publish a version folder to the engines of the settings and enter in the catalog which of them serve it.

        Raises `PublishFailed` where none does.
        """
        return self._finisher.publish(folder)

    def roll_back(self, number: int) -> tuple[Version, PublishReport]:
        """Make the weights of version `number` the newest version, and publish it. Raises as `roll_back` and `publish`.

        The next round repeats a publish that failed.
        """
        with round_turn(self.catalog, self.store, wait=False, lease_s=self.config.lease_s):
            fetch_newest(self.store)
            version = roll_back(self.catalog, self.store, number)
            made = f"version {version.manifest.version} has the weights of version {number}: {version.path}"
            self.console.print(made, soft_wrap=True)
            return version, self.publish(version.path)

    def adopt(self, folder: Path) -> PublishReport:
        """Make a plain Hugging Face folder the newest version, and publish it. Raises as `adopt` and `publish`."""
        with round_turn(self.catalog, self.store, wait=False, lease_s=self.config.lease_s):
            fetch_newest(self.store)
            parent, before = newest_parent(self.catalog, self.store.folder, self.model_path)
            version = adopt(self.catalog, self.store, folder, parent=parent, before=before)
            made = f"version {version.manifest.version} has the weights of {folder}: {version.path}"
            self.console.print(made, soft_wrap=True)
            return self.publish(version.path)

    def replay(self, number: int) -> Replay:
        """Repeat a past round and compare. Raises as `replay_round`."""
        return replay_round(
            self.catalog,
            self.store,
            self.config,
            number,
            model_path=self.model_path,
            mixed=self.mixed,
            console=self.console,
        )

    @property
    def _finisher(self) -> RoundFinisher:
        return RoundFinisher(
            self.catalog, self.store, self.config, self._backend, self.console, self.on_step, self._serve_version
        )

    def _planned(self, parent: int, path: Path, among: Container[str] | None = None) -> PlannedRound | None:
        config = self.config.with_defaults(lambda: num_parameters(path))
        return plan_round(
            self.catalog,
            self.store,
            config,
            parent=parent,
            parent_path=path,
            on_left_out=self._report_left_out,
            among=among,
        )

    def _say_defaults(self, claimed: ClaimedRound) -> None:
        """Print once which settings the model's size decided."""
        if self.config.lr is None and not self._said_defaults:
            rate = claimed.config["lr"]
            self.console.print(f"trainer.lr is not set: {rate:g}, by the model's size (docs/models.md)", soft_wrap=True)
            self._said_defaults = True

    def _report_left_out(self, choice: Choice) -> None:
        """Print each group that is left out once, however often a loop plans a round."""
        for group_id, why in choice.damaged.items():
            if group_id not in self._reported:
                self.console.print(f"[red]group {group_id} waits[/red]: {why}", soft_wrap=True)
        unversioned = [group_id for group_id in choice.unversioned if group_id not in self._reported]
        if unversioned:
            left_out = f"{len(unversioned)} groups are left out" if unversioned[1:] else f"{unversioned[0]} is left out"
            self.console.print(f"[red]{left_out}[/red]: {choice.unversioned[unversioned[0]]}", soft_wrap=True)
        self._reported |= choice.damaged.keys() | choice.unversioned.keys()

    def _resumed(self, times: RoundTimes) -> PlannedRound | None:
        """The round that was claimed and not committed, with its calls as the store has them."""
        claimed = continue_round(self.catalog, self.store.folder)
        if claimed is None:
            return None
        self._check_content(self._parent_folder(claimed), claimed, times)
        with times.step("read"):
            return PlannedRound(claimed=claimed, calls=pinned_calls(self.store, claimed, self.config))

    def _claimed(self, lease: Lease, times: RoundTimes, among: Container[str] | None) -> PlannedRound | None:
        """A new round, with the calls that were read to choose its groups."""
        parent, path = newest_parent(self.catalog, self.store.folder, self.model_path)
        with times.step("read"):
            planned = self._planned(parent, path, among)
        if planned is None:
            return None
        self._check_content(path, planned.claimed, times)
        self._say_defaults(planned.claimed)
        with times.step("claim"):
            check_settings(self.config, path)
            require_room(self.config, path)
            check_lora_base(self.config, self.store.folder, self.model_path)
            mixed = self.mixed.rows(self.config)
            claimed = replace(planned.claimed, mixed_rows=None if mixed is None else mixed.digest)
            if (path / MANIFEST).exists():
                enter_version(self.catalog, path, read_manifest(path))
            claim(self.catalog, self.store.folder, claimed, lease)
        return PlannedRound(claimed=claimed, calls=planned.calls)

    def _run(self, claimed: ClaimedRound, calls: PinnedCalls, lease: Lease, times: RoundTimes) -> RoundReport:
        config = self.config.continuing(claimed.config)
        self.on_step("claimed")
        with ThreadPoolExecutor(max_workers=1) as loader:  # weights load while the judge works
            loading = None if self._devices is not None else loader.submit(self._backend_of, claimed, config)
            if self._ahead is not None:
                with times.step("judge"):
                    self._ahead.finish()
            data = prepare(claimed, calls, self.catalog, config, self.console, times, self.on_step)
            data.metrics.update(self.noted)
            if loading is not None:
                with times.step("load"):
                    loading.result()
        if self.config.judge_ahead_groups:
            self._ahead = JudgingAhead(
                self.catalog, self.store, self.config, parent=claimed.version, on_step=self.on_step
            )
        try:
            version = self._new_version(claimed, data, config, times, lease)
            with times.step("share"):
                version = self._finisher.share(version)
            finished = self._finisher.finish(version, times, lease)
        except BaseException:
            self._return_devices()
            raise
        return RoundReport(
            round=claimed.round,
            version=claimed.version,
            path=version.path,
            metrics=finished.metrics,
            published=finished.published,
            seconds=times.seconds,
        )

    def _new_version(
        self, claimed: ClaimedRound, data: RoundData, config: TrainerConfig, times: RoundTimes, lease: Lease
    ) -> Version:
        """The round's version folder; training has the devices from here on, and still has them afterwards."""
        try:
            self._take_devices(claimed, config, times)
            with times.step("train"):
                metrics = self._train(claimed, data, config)
            with times.step("checkpoint"):
                return self._checkpoint(claimed, config, metrics | times_so_far(times), lease)
        except BaseException:
            self._backend.forget()  # its weights were stepped and belong to no version
            raise

    def _take_devices(self, claimed: ClaimedRound, config: TrainerConfig, times: RoundTimes) -> None:
        """Where engines have the devices, training gets them. Raises `SwitchFailed`."""
        if self._devices is None:
            return
        with times.step("switch"):
            switch(self._devices, to="train")
        self.on_step("switched")
        with times.step("load"):
            self._backend_of(claimed, config)

    def _serve_version(
        self, folder: Path, catalog: Catalog, store: StoreConfig, config: TrainerConfig, console: Console
    ) -> PublishReport:
        """A version to the engines, which get their devices back with it where training has them."""
        if self._devices is not None and self._devices.side == "train":
            report = switch(self._devices, to="rollout", folder=folder).published
            assert report is not None
            return report
        return self._serve(folder, catalog, store, config, console, ranks=self._backend.sending(folder, config))

    def _return_devices(self) -> None:
        """After a failure: the engines serve what they had; the error that led here is the one to raise."""
        if self._devices is None or self._devices.side != "train":
            return
        try:
            switch(self._devices, to="rollout")
        except (TrainerError, StoreUnavailable, OSError, RuntimeError) as error:
            self.console.print(f"[red]the engines did not come back[/red]: {error}", soft_wrap=True)

    def _train(self, claimed: ClaimedRound, data: RoundData, config: TrainerConfig) -> Metrics:
        backend = self._backend_of(claimed, config)
        started = time.monotonic()
        supervised = self.mixed.of_round(claimed, config, backend.num_steps, len(data.samples))
        mixed = self.mixed.figures(config)
        steps = backend.train(
            data.samples,
            fresh_version=claimed.parent,
            seed=claimed.seed + claimed.round,
            supervised=supervised,
        )
        self.on_step("trained")
        keep_tokens(self.store, claimed.round, data, steps, self.config)
        speed = speed_metrics(
            data.metrics["tokens"], time.monotonic() - started, backend.num_parameters, self.config.peak_tflops
        )
        waiting = count_ready(
            self.catalog, timeout_s=config.group_timeout_s, min_size_ratio=config.min_timeout_group_size_ratio
        )
        return data.metrics | step_metrics(steps) | mixed | speed | {"groups_waiting": waiting}

    def _checkpoint(self, claimed: ClaimedRound, config: TrainerConfig, metrics: Metrics, lease: Lease) -> Version:
        backend = self._backend_of(claimed, config)

        def write_files(folder: Path) -> Mapping[str, FileEntry]:
            written = backend.save(folder)
            (folder / METRICS_FILE).write_text(json.dumps(metrics, sort_keys=True))
            renew_lease(self.catalog, lease, self.config.lease_s)  # where it was lost, no folder appears
            self.on_step("files_written")
            return written

        version = write_version(
            version_path(self.store.folder, claimed.version),
            write_files,
            version=claimed.version,
            parent=claimed.parent,
            round_id=claimed.round,
            config_hash=claimed.config_hash,
            seed=claimed.seed,
            groups=claimed.group_ids,
            base=base_of_next(self.store.folder, claimed.parent, config.keep_full_every),
        )
        backend.folder = version.path
        self.on_step("checkpointed")
        return version

    def _check_content(self, folder: Path, claimed: ClaimedRound, times: RoundTimes) -> None:
        """Verify the weights where they will be loaded; those in memory were verified, or became the folder."""
        if not self._backend.is_at(folder, self.config.continuing(claimed.config)):
            with times.step("verify"):
                check_content(folder)

    def _backend_of(self, claimed: ClaimedRound, config: TrainerConfig) -> Backend:
        folder = self._parent_folder(claimed)
        if config.keep_state_every > 1 and not self._backend.is_at(folder, config) and lacks_state(folder):
            self._restore_state(folder, config)
        return self._backend.at(folder, config)

    def _restore_state(self, folder: Path, config: TrainerConfig) -> None:
        if config.missing_state == "fresh":
            text = f"{folder} has no optimiser state: the round begins with new moments and step count"
            self.console.print(text, soft_wrap=True)
            return
        backend = restored(
            folder,
            self.catalog,
            self.store,
            config,
            model_path=self.model_path,
            mixed=self.mixed,
            console=self.console,
        )
        self._backend.put(backend)

    def _parent_folder(self, claimed: ClaimedRound) -> Path:
        return parent_folder(self.store.folder, claimed, self.model_path)
