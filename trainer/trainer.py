"""One training round, from claimed groups to served weights: `Trainer.run_round` reads top to bottom.

Invariant: the rename that makes the version folder appear is the one moment at which a round has happened. Killed
before it, the round is continued from its manifest and gives the same bits; killed after it, what is left (catalog,
publishing, metrics) is repeated from the folder and changes nothing that was done. Model and optimiser stay in memory
between rounds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace
from rich.console import Console

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.leases import Lease, renew_lease
from weir.store.catalog.ready_groups import count_ready
from weir.store.config import StoreConfig
from weir.trainer.lease import round_turn
from weir.trainer.publishing.catalog_entries import delete_old_versions, enter_version, is_published, serve
from weir.trainer.publishing.publish import PublishReport
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
from weir.trainer.rounds.group_selection import Choice, choose_groups
from weir.trainer.rounds.metrics import (
    METRICS_FILE,
    Metrics,
    is_reported,
    print_table,
    speed_metrics,
    step_metrics,
    write_metrics,
)
from weir.trainer.rounds.parent_weights import check_content, newest_parent
from weir.trainer.rounds.preflight import check_settings
from weir.trainer.rounds.prejudge import JudgingAhead
from weir.trainer.rounds.prepare import RoundData, prepare
from weir.trainer.rounds.replay import Replay, keep_manifest, replay_round
from weir.trainer.rounds.rollback import roll_back
from weir.trainer.rounds.supervised_mix import MixedData
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.timings import RoundTimes
from weir.trainer.versions.object_store import fetch_newest, share_version
from weir.trainer.versions.version_folder import (
    MANIFEST,
    FileEntry,
    Version,
    current_version,
    read_manifest,
    set_current,
    version_path,
    write_version,
)

if TYPE_CHECKING:
    from weir.trainer.backend import Backend
    from weir.trainer.data.chat_rows import ChatRenderer


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReport:
    """What a round did."""

    round: int
    version: int
    path: Path
    metrics: Metrics
    published: PublishReport
    seconds: dict[str, float]  # by step; what no step names is in none


class Trainer:
    """Rounds over one store.

    `renderer` opens the renderer for conversations that are mixed in; `on_step` is told the name of each step as it is
    done.
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
    ) -> None:
        self.config = config
        self.store = store
        self.model_path = model_path
        self.console = console or Console(quiet=True)
        self.on_step = on_step
        self.mixed = MixedData(model_path, renderer)
        self.catalog = Catalog.open(store)
        self._learner: Backend | None = None
        self._ahead: JudgingAhead | None = None
        self._told: set[str] = set()  # groups that wait because the log is damaged

    def close(self) -> None:
        """End what is judged ahead, and give the catalog back. May be called twice."""
        if self._ahead is not None:
            self._ahead.close()
        self.catalog.close()

    def run_round(self, *, wait: bool = False) -> RoundReport | None:
        """Finish what an earlier process left, then train one round; None when no group is ready.

        Raises `RoundBusy` when another process trains over this store and `wait` is false, `LeaseLost` when another one
        went on with the round because this one stood still, `JudgeUnavailable` when kernel evaluation is away,
        `PublishFailed` when no engine took the version; calling again continues where it stopped.
        """
        times = RoundTimes()
        with round_turn(self.catalog, self.store, wait=wait, lease_s=self.config.lease_s) as lease:
            with times.step("look_back"):
                fetch_newest(self.store)
                self._finish_interrupted(lease)
            planned = self._continued(times) or self._claimed(lease, times)
            return None if planned is None else self._run(planned.claimed, planned.calls, lease, times)

    def plan(self) -> ClaimedRound | None:
        """What `run_round` would work on; nothing is changed."""
        row = self.catalog.open_round()
        if row is not None:
            return continue_round(self.catalog, self.store.folder)
        if current_version(self.store.folder) is None:
            fetch_newest(self.store)
        parent, path = newest_parent(self.catalog, self.store.folder, self.model_path)
        planned = self._planned(parent, path)
        return None if planned is None else planned.claimed

    def ready(self) -> Choice:
        """The groups that a round of its own would find now, be they enough or not; nothing is changed."""
        parent, _ = newest_parent(self.catalog, self.store.folder, self.model_path)
        return choose_groups(self.catalog, self.store, self.config, parent=parent)

    def _planned(self, parent: int, path: Path) -> PlannedRound | None:
        return plan_round(
            self.catalog, self.store, self.config, parent=parent, parent_path=path, on_damaged=self._tell_damaged
        )

    def _tell_damaged(self, damaged: dict[str, str]) -> None:
        """Each group once, however often a loop asks for a round."""
        for group_id, why in damaged.items():
            if group_id not in self._told:
                self.console.print(f"[red]group {group_id} waits[/red]: {why}", soft_wrap=True)
        self._told |= damaged.keys()

    def _continued(self, times: RoundTimes) -> PlannedRound | None:
        """The round that was claimed and not committed, with its calls as the store has them."""
        claimed = continue_round(self.catalog, self.store.folder)
        if claimed is None:
            return None
        self._check_content(self._parent_folder(claimed), claimed, times)
        with times.step("read"):
            return PlannedRound(claimed=claimed, calls=pinned_calls(self.store, claimed))

    def _claimed(self, lease: Lease, times: RoundTimes) -> PlannedRound | None:
        """A round of its own, with the calls that it was chosen by."""
        parent, path = newest_parent(self.catalog, self.store.folder, self.model_path)
        with times.step("read"):
            planned = self._planned(parent, path)
        if planned is None:
            return None
        self._check_content(path, planned.claimed, times)
        with times.step("claim"):
            check_settings(self.config)
            mixed = self.mixed.rows(self.config)
            claimed = replace(planned.claimed, mixed_rows=None if mixed is None else mixed.digest)
            if (path / MANIFEST).exists():
                enter_version(self.catalog, path, read_manifest(path))
            claim(self.catalog, self.store.folder, claimed, lease)
        return PlannedRound(claimed=claimed, calls=planned.calls)

    def _run(self, claimed: ClaimedRound, calls: PinnedCalls, lease: Lease, times: RoundTimes) -> RoundReport:
        config = self.config.continuing(claimed.config)
        self.on_step("claimed")
        with ThreadPoolExecutor(max_workers=1) as loader:  # the weights come while the judge works
            loading = loader.submit(self._learner_at, self._parent_folder(claimed), config)
            if self._ahead is not None:
                with times.step("judge"):
                    self._ahead.finish()
            data = prepare(claimed, calls, self.catalog, config, self.console, times, self.on_step)
            with times.step("load"):
                loading.result()
        if self.config.judge_ahead_groups:
            self._ahead = JudgingAhead(
                self.catalog, self.store, self.config, parent=claimed.version, on_step=self.on_step
            )
        try:
            with times.step("train"):
                metrics = self._train(claimed, data, config)
            with times.step("checkpoint"):
                version = self._checkpoint(claimed, config, metrics | {"seconds": dict(times.seconds)}, lease)
        except BaseException:
            self._learner = None  # its weights were stepped, and are no version's
            raise
        with times.step("share"):
            version = self._shared(version)
        return self._finish(version, times, lease)

    def _train(self, claimed: ClaimedRound, data: RoundData, config: TrainerConfig) -> Metrics:
        learner = self._learner_at(self._parent_folder(claimed), config)
        started = time.monotonic()
        supervised = self.mixed.of_round(claimed, config, learner.num_steps, len(data.samples))
        mixed = self.mixed.figures(config)
        steps = learner.train(
            data.samples,
            fresh_version=claimed.parent,
            seed=claimed.seed + claimed.round,
            supervised=supervised,
        )
        self.on_step("trained")
        speed = speed_metrics(
            data.metrics["tokens"], time.monotonic() - started, learner.num_parameters, self.config.peak_tflops
        )
        waiting = count_ready(
            self.catalog, timeout_s=config.group_timeout_s, min_size_ratio=config.min_timeout_group_size_ratio
        )
        return data.metrics | step_metrics(steps) | mixed | speed | {"groups_waiting": waiting}

    def _checkpoint(self, claimed: ClaimedRound, config: TrainerConfig, metrics: Metrics, lease: Lease) -> Version:
        learner = self._learner_at(self._parent_folder(claimed), config)

        def write_files(folder: Path) -> Mapping[str, FileEntry]:
            written = learner.save(folder)
            (folder / METRICS_FILE).write_text(json.dumps(metrics, sort_keys=True))
            renew_lease(self.catalog, lease, self.config.lease_s)  # or nothing appears
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
        )
        learner.folder = version.path
        self.on_step("checkpointed")
        return version

    def _finish_interrupted(self, lease: Lease) -> None:
        """A version folder of a round is there: everything after its rename is done again, as far as it is missing."""
        newest = current_version(self.store.folder)
        if newest is None:
            return
        version = self._shared(newest)
        if version.manifest.parent is None:
            return
        unpublished = bool(self.config.engine_urls) and not is_published(self.catalog, version.manifest.version)
        if version.manifest.round is None:  # an earlier one that was gone back to
            if unpublished:
                self.publish(version.path)
        elif unpublished or not is_reported(self.store.folder, version.manifest.round):
            self.console.print(f"round {version.manifest.round}: finishing version {version.manifest.version}")
            self._finish(version, RoundTimes(), lease)

    def _finish(self, version: Version, times: RoundTimes, lease: Lease) -> RoundReport:
        """Everything after the rename: repeatable, and the same each time."""
        metrics = json.loads((version.path / METRICS_FILE).read_bytes())
        with times.step("commit"):
            self._commit(version, metrics, lease)
        try:
            with times.step("publish"):
                report = self.publish(version.path)
        finally:
            with times.step("report"):
                metrics["seconds"] |= times.seconds
                # Again, with the times of what came after.
                self.catalog.commit_round(metrics["round"], metrics["version"], metrics, lease)
                write_metrics(self.store.folder, metrics, tensorboard=self.config.tensorboard)
                print_table(self.console, metrics)
        with times.step("garbage"):
            delete_old_versions(self.catalog, self.store, self.config, self.console)
        return RoundReport(
            round=metrics["round"],
            version=metrics["version"],
            path=version.path,
            metrics=metrics,
            published=report,
            seconds=times.seconds,
        )

    def _shared(self, version: Version) -> Version:
        """The version as all machines see it: this one, or that of a trainer which came first with the same round."""
        shared = share_version(self.store, version)
        if shared.manifest != version.manifest:
            self._learner = None  # its weights are those of the folder that is gone
        self.on_step("shared")
        return shared

    def _commit(self, version: Version, metrics: Metrics, lease: Lease) -> None:
        manifest = version.manifest
        assert manifest.round is not None
        keep_manifest(self.store, manifest)
        set_current(self.store.folder, manifest.version)
        self.on_step("current")
        enter_version(self.catalog, version.path, manifest)
        self.on_step("version_added")
        self.catalog.commit_round(manifest.round, manifest.version, metrics, lease)
        self.on_step("committed")

    def publish(self, folder: Path) -> PublishReport:
        """Bring a version folder to the engines of the settings, and write down who serves it.

        Raises `PublishFailed` when no engine serves it.
        """
        report = serve(folder, self.catalog, self.store, self.config, self.console)
        self.on_step("published")
        return report

    def roll_back(self, number: int) -> tuple[Version, PublishReport]:
        """Make the weights of version `number` the newest version, and publish it. Raises as `roll_back` and `publish`.

        A publish that failed is repeated by the next round, as any.
        """
        with round_turn(self.catalog, self.store, wait=False, lease_s=self.config.lease_s):
            fetch_newest(self.store)
            version = roll_back(self.catalog, self.store, number)
            made = f"version {version.manifest.version} has the weights of version {number}: {version.path}"
            self.console.print(made, soft_wrap=True)
            return version, self.publish(version.path)

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

    def _parent_folder(self, claimed: ClaimedRound) -> Path:
        return parent_folder(self.store.folder, claimed, self.model_path)

    def _check_content(self, folder: Path, claimed: ClaimedRound, times: RoundTimes) -> None:
        """Hold the weights against their manifest where they will be loaded; those in memory were, or made it."""
        config = self.config.continuing(claimed.config)
        if not self._stands_at(folder, config) or config.processes > 1:  # whose processes load in every round
            with times.step("verify"):
                check_content(folder)

    def _stands_at(self, folder: Path, config: TrainerConfig) -> bool:
        learner = self._learner
        return learner is not None and learner.folder.absolute() == folder.absolute() and learner.config == config

    def _learner_at(self, folder: Path, config: TrainerConfig) -> Backend:
        """The learner in memory where it stands at this folder, else one loaded from it."""
        from weir.trainer.backend import open_backend

        if self._learner is None or not self._stands_at(folder, config):
            reference = Path(config.reference_path or self.model_path)
            self._learner = open_backend(folder, config, reference=reference)
        return self._learner
