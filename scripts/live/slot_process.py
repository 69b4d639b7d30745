"""The process of the training slot: rounds, one for each request, by the code of `weir round`.

A request names the newest version that the controller knows, or asks to load what a round begins with. Invariant: what
an earlier process left is finished before a group is claimed, and is the answer to the request then; so no round is run
twice, and none is missed. Engines are not published to: the controller does that.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from rich.console import Console

from weir.scripts.launch.resolve import chat_renderer, first_weights, see_training_gpus, trainer_config
from weir.scripts.launch.settings import load_settings
from weir.scripts.live.reports import Reports
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.errors import StoreError
from weir.trainer.errors import TrainerError, TrainerUsageError
from weir.trainer.publishing.publish import PublishReport
from weir.trainer.rounds.group_selection import choose_groups
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.trainer import Trainer
from weir.trainer.versions.version_folder import current_version, read_manifest


def left_to_the_controller(folder: Path, *_: Any, **__: Any) -> PublishReport:
    """Publish nothing."""
    version = read_manifest(folder).version
    return PublishReport(version=version, serving=[], failed={}, seconds=0.0, times={}, timeline=())


class Slot:
    """Rounds over one store."""

    def __init__(self, trainer: Trainer, groups: int, least: int) -> None:
        self._trainer = trainer
        trainer.config = trainer.config.model_copy(update={"groups_per_round": groups, "min_groups": least})
        self._may_be_left = True  # by an earlier process, or by a round of this one that failed

    def run(self, known: int, groups: list[str], refilled: int = 0) -> dict[str, Any]:
        """What an earlier process left, else a new round of these groups, if any; the answer to the controller.

        `refilled` groups without spread were replaced since the round before, which the round's metrics say.
        """
        self._trainer.noted = {"groups_refilled": refilled} if refilled else {}
        tried = False
        try:
            if self._may_be_left:
                self._trainer.run_round(wait=True, among=())
                self._may_be_left = False
            if groups and self._newest() == known:
                tried = self._may_be_left = True
                self._trainer.run_round(wait=True, among=frozenset(groups))
                self._may_be_left = False
        except (TrainerError, StoreError, OSError) as error:
            is_fatal = isinstance(error, TrainerUsageError)
            return {"failure": f"{type(error).__name__}: {error}", "is_fatal": is_fatal}
        newest = self._newest()
        taken = self._groups_of(newest) if newest != known else []
        left_out = self._left_out({*groups} - {*taken}, newest) if tried else []
        return {"left_out": left_out} | ({"version": newest, "groups": taken} if newest != known else {})

    def load_ahead(self) -> dict[str, Any]:
        """Have weights and the optimiser's state in memory for the next round; a failure is left to that round."""
        if not self._may_be_left:
            try:
                self._trainer.load_ahead()
            except (TrainerError, StoreError, OSError) as error:
                return {"failure": f"{type(error).__name__}: {error}"}
        return {}

    def _newest(self) -> int:
        found = current_version(self._trainer.store.folder)
        return found.manifest.version if found is not None else 0

    def _groups_of(self, version: int) -> list[str]:
        rounds = self._trainer.catalog.rounds()
        return next((row.group_ids for row in rounds if row.weight_version == version), [])

    def _left_out(self, groups: Collection[str], newest: int) -> list[str]:
        """Those of the groups that no round takes as they are, whatever the reason."""
        if not groups:
            return []
        trainer = self._trainer
        choice = choose_groups(trainer.catalog, trainer.store, trainer.config, parent=newest, among=groups)
        return sorted({*groups} - {group.row.group_id for group in choice.groups})


class Steps:
    """Reports each step of a round, and with the end of judging ahead its seconds: it may be read much later."""

    def __init__(self, report: Callable[[dict[str, Any]], None]) -> None:
        self._report = report
        self._judges_since_s = 0.0

    def __call__(self, step: str) -> None:
        """A step is done, or judging ahead has begun."""
        now = time.monotonic()
        if step == "judging_ahead":
            self._judges_since_s = now
        self._report({"step": step, "seconds": now - self._judges_since_s if step == "judged_ahead" else 0.0})


def open_trainer(
    config: TrainerConfig, store: StoreConfig, model: Path, report: Callable[[dict[str, Any]], None], **more: Any
) -> Trainer:
    """A trainer that leaves publishing to the controller, and reports its steps."""
    return Trainer(
        config,
        store,
        model_path=model,
        console=Console(stderr=True),
        on_step=Steps(report),
        serve=left_to_the_controller,
        **more,
    )


def main(config_path: Path | None, groups: int, least: int, max_staleness: int) -> None:
    """Answer requests until the end of input."""
    reports = Reports()
    settings = load_settings(config_path)
    model = first_weights(settings, None)
    see_training_gpus(settings)
    Catalog.open(settings.store).close()
    config = trainer_config(settings).model_copy(update={"max_staleness": max_staleness})
    trainer = open_trainer(config, settings.store, model, reports.send, renderer=lambda: chat_renderer(model, settings))
    slot = Slot(trainer, groups, least)
    try:
        for line in sys.stdin:
            request = json.loads(line)
            with reports.beating():
                answer = {"loaded": slot.load_ahead()} if request.get("load_ahead") else {"end": slot.run(**request)}
            reports.send(answer)
    finally:
        trainer.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1] else None, *(int(given) for given in sys.argv[2:5]))
