"""Versions in the catalog: entering them, recording which engines serve them, and deleting old ones.

Invariant: a version that an engine may still load is not deleted: versions stay until every engine of the settings has
acknowledged a newer one. Until then they also stay whole.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from weir.store.catalog.catalog import Catalog
from weir.store.clock import now_us
from weir.store.config import StoreConfig
from weir.trainer.errors import VersionError
from weir.trainer.lease import publish_turn
from weir.trainer.publishing.publish import PublishReport, publish
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.versions.object_store import delete_old_shared_versions
from weir.trainer.versions.stored import prune, thin
from weir.trainer.versions.version_folder import MANIFEST, VersionManifest, read_manifest

if TYPE_CHECKING:
    from weir.trainer.publishing.rank_sender import SendingRanks


def enter_version(catalog: Catalog, folder: Path, manifest: VersionManifest) -> None:
    """Enter a version in the catalog; entering it again changes nothing."""
    catalog.add_version(
        manifest.version,
        path=str(folder.absolute()),
        parent=manifest.parent,
        round_id=manifest.round,
        manifest_sha256=hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest(),
    )


def is_published(catalog: Catalog, version: int) -> bool:
    """Whether some engine has acknowledged a version."""
    return any(row.version == version and row.published_us is not None for row in catalog.versions())


def serve(
    folder: Path,
    catalog: Catalog,
    store: StoreConfig,
    config: TrainerConfig,
    console: Console,
    *,
    holds_calls: bool = True,
    holder: str | None = None,
    stages_ahead: bool = True,
    hold_limit_s: float | None = None,
    ranks: SendingRanks | None = None,
) -> PublishReport:
    """Publish a version folder to the engines, as `publish`, and enter in the catalog which serve it.

    `holds_calls` is false for engines that are out of rotation; those that serve the version already go on. Raises
    `PublishFailed`, of it `HoldTooShort`.
    """
    manifest = read_manifest(folder)
    enter_version(catalog, folder, manifest)
    with publish_turn(catalog, store, lease_s=config.lease_s) if config.engine_urls else nullcontext():
        key = control_key(config, store)
        report = publish(
            folder,
            manifest.version,
            config,
            key,
            catalog,
            holds_calls=holds_calls,
            holder=holder,
            stages_ahead=stages_ahead,
            hold_limit_s=hold_limit_s,
            ranks=ranks,
        )
        if report.serving:
            before = () if holds_calls else _serving(catalog, manifest.version)
            catalog.set_published(manifest.version, now_us(), [*dict.fromkeys((*before, *report.serving))])
    if not config.engine_urls:
        console.print(
            f"[red]version {manifest.version} is published to nobody[/red]: no engine is known, so agents keep the "
            "weights that they have; start engines with `weir up`, or name them by engine.urls or trainer.engine_urls, "
            f"and run `weir publish {folder}`",
            soft_wrap=True,
        )
    if report.serving:
        console.print(f"version {manifest.version} is served by {', '.join(report.serving)}{_by_way(report, config)}")
    for url, why in report.fallbacks.items():
        console.print(f"[yellow]engine {url} got version {manifest.version} by {report.ways.get(url)}[/yellow]: {why}")
    for url, why in report.failed.items():
        console.print(f"[red]engine {url} is paused and out of rotation[/red]: {why}")
    return report


def _serving(catalog: Catalog, version: int) -> list[str]:
    return next((row.engines or [] for row in catalog.versions() if row.version == version), [])


def _by_way(report: PublishReport, config: TrainerConfig) -> str:
    """How many engines got the version in which way; nothing where no other way than the folder is wanted."""
    if config.publish.way == "disk":
        return ""
    counts = Counter(report.ways.values())
    sent = f"; sent by {report.num_sending_ranks} ranks" if report.num_sending_ranks else ""
    return f" ({', '.join(f'{way}: {number}' for way, number in sorted(counts.items()))}{sent})"


def delete_old_versions(catalog: Catalog, store: StoreConfig, config: TrainerConfig, console: Console) -> list[int]:
    """Delete all but the newest `keep_versions` folders, unless an engine may still load one; returns their numbers.

    Older versions that have deltas lose their whole files, unless one is damaged, which is printed.
    """
    acknowledged = dict.fromkeys(config.engine_urls, -1)
    for row in catalog.versions():
        for url in row.engines or []:
            if url in acknowledged:
                acknowledged[url] = max(acknowledged[url], row.version)
    oldest = min(acknowledged.values(), default=None)
    delete_old_shared_versions(store, config.keep_versions, below=oldest)
    deleted, wanted = prune(store.folder, config.keep_versions, below=oldest)
    try:
        thin(store.folder, below=oldest)
    except VersionError as error:  # the round has happened; nothing of that version was deleted
        console.print(f"[red]old versions stay whole[/red]: {error}", soft_wrap=True)
    if wanted:
        behind = ", ".join(sorted(url for url, version in acknowledged.items() if version == oldest))
        console.print(
            f"{len(wanted)} old versions are kept: {behind} has not acknowledged a newer one; repair it and "
            "publish again, or remove it from trainer.engine_urls"
        )
    return deleted


def control_key(config: TrainerConfig, store: StoreConfig) -> str | None:
    """The key of the proxies' control routes: from the settings, else from the file that a proxy wrote in the store."""
    file = store.folder / "control.key"
    if config.control_key is not None or not file.exists():
        return config.control_key
    return file.read_text().strip()
