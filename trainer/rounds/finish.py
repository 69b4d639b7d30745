"""The part of a round after the rename of its version folder: share, commit, publish, report, delete old versions.

Invariant: all of it is repeatable and reads only what the folder and the catalog hold, so the next start completes it
for a process that was killed in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.leases import Lease
from weir.store.config import StoreConfig
from weir.trainer.publishing.catalog_entries import delete_old_versions, enter_version, is_published
from weir.trainer.publishing.publish import PublishReport
from weir.trainer.rounds.loaded_backend import LoadedBackend
from weir.trainer.rounds.metrics import METRICS_FILE, Metrics, is_reported, print_table, times_so_far, write_metrics
from weir.trainer.rounds.replay import keep_manifest
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.timings import RoundTimes
from weir.trainer.versions.object_store import share_version
from weir.trainer.versions.version_folder import Version, current_version, set_current

Serve = Callable[[Path, Catalog, StoreConfig, TrainerConfig, Console], PublishReport]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRound:
    """A round that is committed and published."""

    metrics: Metrics
    published: PublishReport


class RoundFinisher:
    """Completes rounds over one store. `on_step` gets the name of each step once it is done."""

    def __init__(
        self,
        catalog: Catalog,
        store: StoreConfig,
        config: TrainerConfig,
        backend: LoadedBackend,
        console: Console,
        on_step: Callable[[str], None],
        serve: Serve,
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._config = config
        self._backend = backend
        self._console = console
        self._on_step = on_step
        self._serve = serve

    def share(self, version: Version) -> Version:
        """Share a version with all machines. Returns it, or the one that another trainer shared for this round."""
        shared = share_version(self._store, version)
        if shared.manifest != version.manifest:
            self._backend.forget()  # its weights are those of the folder that was replaced
        self._on_step("shared")
        return shared

    def finish(self, version: Version, times: RoundTimes, lease: Lease) -> FinishedRound:
        """Commit a round, publish its version, report its metrics and delete old versions.

        Raises `PublishFailed` where no engine serves the version; the round is committed and reported nevertheless.
        """
        metrics = json.loads((version.path / METRICS_FILE).read_bytes())
        with times.step("commit"):
            self._commit(version, metrics, lease)
        published = None
        try:
            with times.step("publish"):
                published = self.publish(version.path)
        finally:
            with times.step("report"):
                metrics = _with_times(metrics, times, published)
                # Again, with the seconds of the later steps.
                self._catalog.commit_round(metrics["round"], metrics["version"], metrics, lease)
                write_metrics(self._store.folder, metrics, tensorboard=self._config.tensorboard)
                print_table(self._console, metrics)
        with times.step("garbage"):
            delete_old_versions(self._catalog, self._store, self._config, self._console)
        return FinishedRound(metrics=metrics, published=published)

    def finish_interrupted(self, lease: Lease) -> None:
        """Complete the round of the newest version folder where a killed process did not. Raises `PublishFailed`."""
        newest = current_version(self._store.folder)
        if newest is None:
            return
        version = self.share(newest)
        if version.manifest.parent is None:
            return
        unpublished = bool(self._config.engine_urls) and not is_published(self._catalog, version.manifest.version)
        if version.manifest.round is None:  # made by a rollback
            if unpublished:
                self.publish(version.path)
        elif unpublished or not is_reported(self._store.folder, version.manifest.round):
            self._console.print(f"round {version.manifest.round}: finishing version {version.manifest.version}")
            self.finish(version, RoundTimes(), lease)

    def publish(self, folder: Path) -> PublishReport:
        """Publish a version folder to the engines of the settings and enter in the catalog which of them serve it.

        Raises `PublishFailed` where none does.
        """
        report = self._serve(folder, self._catalog, self._store, self._config, self._console)
        self._on_step("published")
        return report

    def _commit(self, version: Version, metrics: Metrics, lease: Lease) -> None:
        manifest = version.manifest
        assert manifest.round is not None
        keep_manifest(self._store, manifest)
        set_current(self._store.folder, manifest.version)
        self._on_step("current")
        enter_version(self._catalog, version.path, manifest)
        self._on_step("version_added")
        self._catalog.commit_round(manifest.round, manifest.version, metrics, lease)
        self._on_step("committed")


def _with_times(metrics: Metrics, times: RoundTimes, published: PublishReport | None) -> Metrics:
    """Metrics with the times of the steps since the checkpoint, and with those inside a publish that succeeded."""
    before, later = metrics.get("timeline", []), times_so_far(times)
    known = {(name, began) for name, began, _ in before}
    spans = [*times.timeline, *(() if published is None else published.timeline)]
    return metrics | {
        "seconds": metrics["seconds"] | later["seconds"],
        "timeline": [*before, *(list(span) for span in spans if (span[0], span[1]) not in known)],
    }
