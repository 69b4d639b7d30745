"""The process of the training slot: rounds, one for each request, by the code of `weir round`.

A request names the newest version that the controller knows. Invariant: what an earlier process left is finished before
a group is claimed, and is the answer to the request then; so no round is run twice, and none is missed. Engines are not
published to: the controller does that.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

from rich.console import Console

from weir.scripts.launch.resolve import chat_renderer, first_weights, see_training_gpus, trainer_config
from weir.scripts.launch.settings import load_settings
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.trainer.errors import TrainerError, TrainerUsageError
from weir.trainer.publishing.publish import PublishReport
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.trainer import Trainer
from weir.trainer.versions.version_folder import current_version, read_manifest

_REPORTING = threading.Lock()


def left_to_the_controller(folder: Path, *_: Any) -> PublishReport:
    """Publish nothing."""
    version = read_manifest(folder).version
    return PublishReport(version=version, serving=[], failed={}, seconds=0.0, times={}, timeline=())


class Slot:
    """Rounds over one store."""

    def __init__(self, trainer: Trainer, groups: int, least: int) -> None:
        self._trainer = trainer
        trainer.config = trainer.config.model_copy(update={"groups_per_round": groups, "min_groups": least})
        self._may_be_left = True  # by an earlier process, or by a round of this one that failed

    def run(self, known: int, groups: list[str]) -> dict[str, Any]:
        """What an earlier process left, else a new round of these groups, if any; the answer to the controller."""
        try:
            if self._may_be_left:
                self._trainer.run_round(wait=True, among=())
                self._may_be_left = False
            if groups and self._newest() == known:
                self._may_be_left = True
                self._trainer.run_round(wait=True, among=frozenset(groups))
                self._may_be_left = False
        except (TrainerError, OSError) as error:
            is_fatal = isinstance(error, TrainerUsageError)
            return {"failure": f"{type(error).__name__}: {error}", "is_fatal": is_fatal}
        if (newest := self._newest()) != known:
            return {"version": newest, "groups": self._groups_of(newest)}
        return {"left_out": self._left_out()} if groups else {}

    def _newest(self) -> int:
        found = current_version(self._trainer.store.folder)
        return found.manifest.version if found is not None else 0

    def _groups_of(self, version: int) -> list[str]:
        rounds = self._trainer.catalog.rounds()
        return next((row.group_ids for row in rounds if row.weight_version == version), [])

    def _left_out(self) -> list[str]:
        choice = self._trainer.ready()
        return [*choice.expired, *choice.surplus, *choice.damaged, *choice.unversioned]


def open_trainer(config: TrainerConfig, store: StoreConfig, model: Path, **more: Any) -> Trainer:
    """A trainer that leaves publishing to the controller, and reports its steps."""
    return Trainer(
        config,
        store,
        model_path=model,
        console=Console(stderr=True),
        on_step=lambda step: _report({"step": step}),
        serve=left_to_the_controller,
        **more,
    )


def _report(report: dict[str, Any]) -> None:
    line = json.dumps(report) + "\n"
    with _REPORTING:  # what judges ahead reports from its own thread
        sys.stdout.write(line)
        sys.stdout.flush()


def main(config_path: Path | None, groups: int, least: int, max_staleness: int) -> None:
    """Answer requests until the end of input."""
    settings = load_settings(config_path)
    model = first_weights(settings, None)
    see_training_gpus(settings)
    Catalog.open(settings.store).close()
    config = trainer_config(settings).model_copy(update={"max_staleness": max_staleness})
    trainer = open_trainer(config, settings.store, model, renderer=lambda: chat_renderer(model, settings))
    slot = Slot(trainer, groups, least)
    try:
        for line in sys.stdin:
            request = json.loads(line)
            _report({"end": slot.run(request["known"], request["groups"])})
    finally:
        trainer.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1] else None, *(int(given) for given in sys.argv[2:5]))
