"""Rounds whose versions are stored as differences to their parents."""

from __future__ import annotations

from pathlib import Path

from support_loading_engine import loading_engine
from support_rounds import Judge, add_group, trainer_config

from weir.store.config import StoreConfig
from weir.trainer.trainer import Trainer
from weir.trainer.versions.stored import verify_stored
from weir.trainer.versions.version_folder import list_versions, version_path

ROUNDS = 3


def test_versions_between_whole_ones_are_repeated_and_rolled_back_to_as_others_are(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    for number in range(ROUNDS):
        add_group(store, tiny_model_dir, f"g{number}", [0.0, 0.3, 1.0])
    with loading_engine() as engine:
        config = trainer_config(
            judge, groups_per_round=1, max_staleness=ROUNDS, keep_full_every=3, engine_urls=[engine.url]
        )
        trainer = Trainer(config, store, model_path=tiny_model_dir)
        contents = {}
        for _ in range(ROUNDS):
            report = trainer.run_round()
            assert report is not None
            contents[report.version] = (report.path / "model.safetensors").read_bytes()
        versions = list_versions(store.folder)
        assert [version.manifest.base for version in versions] == [None, 1, 2]
        assert [(version.path / "model.safetensors").exists() for version in versions] == [True, False, True]
        for version in versions:
            verify_stored(version.path)
        assert trainer.replay(3).differing == [], "its parent was rebuilt"
        assert (version_path(store.folder, 2) / "model.safetensors").read_bytes() == contents[2]
        (version_path(store.folder, 2) / "model.safetensors").unlink()
        version, _ = trainer.roll_back(2)
        assert (version.path / "model.safetensors").read_bytes() == contents[2]
        assert (version.manifest.base, sorted(file.suffix for file in version.path.glob("model*"))) == (
            None,
            [".safetensors"],
        )
        assert engine.version == "4"
        trainer.close()
