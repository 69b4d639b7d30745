"""Concurrent rounds, rollbacks and publishes over one store: each completes, or ends with a named error."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support_loading_engine import loading_engine
from support_rounds import Judge, add_group, trainer_config

from weir.store.config import StoreConfig
from weir.trainer.errors import RoundBusy, TrainerError
from weir.trainer.lease import round_lock
from weir.trainer.trainer import Trainer
from weir.trainer.versions.version_folder import list_versions, version_path

ONE_PUBLISH = ["pause_generation", "update_weights_from_disk", "model_info", "continue_generation"]


def test_a_publish_waits_for_another_one(tiny_model_dir: Path, store: StoreConfig, judge: Judge) -> None:
    """Without the lock, the engine would serve the last request's version, and both would have read back their own."""
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    with loading_engine() as engine, ThreadPoolExecutor() as threads:
        trainer = Trainer(trainer_config(judge, engine_urls=[engine.url]), store, model_path=tiny_model_dir)
        assert trainer.run_round() is not None
        folder = version_path(store.folder, 1)
        engine.told.clear()
        engine.fault = "hangs"
        first = threads.submit(trainer.publish, folder)
        engine.hung.wait()
        engine.fault = None
        with pytest.raises(RoundBusy), round_lock(store.folder, wait=False, name="publish.lock"):
            pass
        second = threads.submit(trainer.publish, folder)
        engine.let_go.set()
        assert first.result().serving == second.result().serving == [engine.url]
        assert engine.told == ONE_PUBLISH * 2
        trainer.close()


def test_rounds_a_way_back_and_publishes_at_once_leave_one_line_of_versions_and_one_version_on_all_engines(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    with loading_engine() as one, loading_engine() as other:
        urls = [one.url, other.url]  # whichever comes first, no group may be too old
        config = trainer_config(judge, engine_urls=urls, groups_per_round=1, keep_versions=9, max_staleness=9)

        def do(act: Callable[[Trainer], object]) -> str:
            trainer = Trainer(config, store, model_path=tiny_model_dir)
            try:
                act(trainer)
            except TrainerError as error:
                return type(error).__name__
            finally:
                trainer.close()
            return "done"

        for group_id in ("g1", "g2", "g3"):
            add_group(store, tiny_model_dir, group_id, [0.0, 1.0])
        assert do(lambda trainer: trainer.run_round()) == do(lambda trainer: trainer.run_round()) == "done"
        acts: list[Callable[[Trainer], object]] = [
            lambda trainer: trainer.run_round(),
            lambda trainer: trainer.run_round(wait=True),
            lambda trainer: trainer.roll_back(1),
            lambda trainer: trainer.publish(version_path(store.folder, 1)),
            lambda trainer: trainer.publish(version_path(store.folder, 2)),
        ]
        with ThreadPoolExecutor(max_workers=len(acts)) as threads:
            told = list(threads.map(do, acts))
        assert told[1] == told[3] == told[4] == "done"
        assert {told[0], told[2]} <= {"done", "RoundBusy"}
        trainer = Trainer(config, store, model_path=tiny_model_dir)
        consumed = [group_id for row in trainer.catalog.rounds() for group_id in row.group_ids]
        assert sorted(consumed) == ["g1", "g2", "g3"]
        numbers = [version.manifest.version for version in list_versions(store.folder)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert one.version == other.version
        for engine in (one, other):
            assert engine.told == ONE_PUBLISH * (len(engine.told) // 4)
        trainer.close()
