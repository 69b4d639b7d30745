"""The publishers of `weir bench publish --faults`: processes of their own, which may be killed.

The processes are forked from one that has imported the trainer, because importing it takes longer than publishing.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import shutil
import sys
import time
from collections.abc import Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Self

from weir.store.config import StoreConfig
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.publishing import PublishConfig, Way
from weir.trainer.versions.version_folder import version_path, write_version

BY_BUCKETS: tuple[Way, ...] = ("tensor", "distributed", "auto")
WAYS: tuple[Way, ...] = ("disk", "delta", *BY_BUCKETS)
LIMIT_S = 10.0  # of one answer of an engine: one that hangs for longer is left out
LEASE_S = 1.0  # until another publisher takes the turn of one that was killed
_MODULES = (
    "weir.trainer.publishing.catalog_entries",
    "weir.trainer.publishing.delta_sender",
    "weir.trainer.publishing.senders",
)


def write_versions(root: Path, models: Sequence[Path], number: int) -> list[Path]:
    """Versions 1 to `number` in the store's folder; version N has the weights of model N modulo their number."""
    folders = []
    for version in range(1, number + 1):
        weights = models[version % len(models)] / "model.safetensors"

        def copy(folder: Path, weights: Path = weights) -> None:
            shutil.copyfile(weights, folder / "model.safetensors")
            for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
                shutil.copyfile(weights.parent / name, folder / name)

        folder = version_path(root, version)
        write_version(
            folder, copy, version=version, parent=version - 1, round_id=version, config_hash="", seed=0, groups=[]
        )
        folders.append(folder)
    return folders


class Publishers:
    """Starts publishers; to be used as a context."""

    def __init__(self, root: Path, **settings: Any) -> None:
        """`settings` are the trainer's."""
        self.took_s: list[float] = []  # of those that were not killed
        self._root = root
        self._settings = settings
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(_MODULES))
        self._started: dict[int, float] = {}
        self._running: list[ForkServerProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.kill()
            process.join()

    def start(self, version: Path, way: Way, *, damaged: bool) -> ForkServerProcess:
        """Publish a version's folder; where it is `damaged`, a bit of each bucket changes on its way."""
        settings = self._settings | {"publish": {"way": way, "bucket_mb": 1, "shared_memory": False}}
        process = self._context.Process(target=_publish, args=(self._root, version, settings, damaged), daemon=True)
        process.start()
        assert process.pid is not None
        self._started[process.pid] = time.monotonic()
        self._running.append(process)
        return process

    async def ended(self, process: ForkServerProcess) -> bool:
        """Wait for a publisher; whether some engine serves its version."""
        await asyncio.to_thread(process.join)
        assert process.pid is not None
        began_s = self._started.pop(process.pid)
        if process.exitcode is not None and process.exitcode >= 0:
            self.took_s.append(time.monotonic() - began_s)
        self._running.remove(process)
        return process.exitcode == 0


def _publish(root: Path, version: Path, settings: dict[str, Any], damaged: bool) -> None:
    from rich.console import Console

    from weir.store.catalog.catalog import Catalog
    from weir.trainer.errors import PublishFailed
    from weir.trainer.publishing.catalog_entries import serve

    if damaged:
        _damage_buckets()
    store = StoreConfig(root=root)
    publish = PublishConfig(**settings.pop("publish"))
    config = TrainerConfig(**settings, publish=publish, publish_timeout_s=LIMIT_S, lease_s=LEASE_S)
    catalog = Catalog.open(store)
    try:
        serve(version, catalog, store, config, Console(quiet=True))
    except PublishFailed as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    finally:
        catalog.close()


def _damage_buckets() -> None:
    """Change a bit of every bucket after it was filled, in this process."""
    from weir.trainer.publishing.weight_source import WeightSource

    source: Any = WeightSource
    fill = source._fill

    def fill_and_damage(self: WeightSource, flat: Any, entries: Any) -> None:
        fill(self, flat, entries)
        flat[entries[0].start_idx + 3] ^= 1  # of a value in float32: its exponent

    source._fill = fill_and_damage
