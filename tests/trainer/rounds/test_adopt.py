"""Weights from elsewhere become the newest version, which engines serve and rounds continue from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support_model import make_tiny_model
from support_rounds import Judge, add_group, trainer_config
from support_servers import EngineFactory

from weir.store.config import StoreConfig
from weir.trainer.errors import RoundError, VersionError
from weir.trainer.rounds.adopt import is_plain
from weir.trainer.trainer import Trainer
from weir.trainer.versions.version_folder import list_versions, verify


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_engines_serve_a_plain_folder_and_the_next_round_continues_from_it(
    tiny_model_dir: Path, tmp_path: Path, store: StoreConfig, judge: Judge, engine_server: EngineFactory
) -> None:
    engine = engine_server()
    other = make_tiny_model(tmp_path / "other", seed=5)
    (other / "tokenizer.json").unlink()
    assert is_plain(other)
    trainer = Trainer(trainer_config(judge, engine_urls=[engine.url]), store, model_path=tiny_model_dir)
    report = trainer.adopt(other)
    (version,) = list_versions(store.folder)
    assert (version.manifest.version, version.manifest.parent, report.serving) == (1, None, [engine.url])
    assert weights(version.path) == weights(other) != weights(tiny_model_dir)
    assert (version.path / "tokenizer.json").read_bytes() == (tiny_model_dir / "tokenizer.json").read_bytes()
    verify(version.path)
    assert not is_plain(version.path)
    assert engine.get("/model_info")["weight_version"] == "1"
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0], version="1")
    done = trainer.run_round()
    assert done is not None
    assert (done.version, done.metrics["parent"]) == (2, 1)
    shutil.rmtree(store.folder / "versions")
    with pytest.raises(RoundError, match="holds no version"):
        trainer.run_round()
    trainer.close()


def test_another_model_is_refused_by_its_tensor_and_nothing_changes(
    tiny_model_dir: Path, tmp_path: Path, store: StoreConfig, judge: Judge
) -> None:
    trainer = Trainer(trainer_config(judge), store, model_path=tiny_model_dir)
    wide = make_tiny_model(tmp_path / "wide", hidden_size=128)
    with pytest.raises(
        VersionError, match=r"another model: model\.embed_tokens\.weight has shape \[512, 128\].*\[512, 64\]"
    ):
        trainer.adopt(wide)
    deep = make_tiny_model(tmp_path / "deep", num_layers=3)
    with pytest.raises(VersionError, match=r"another model: model\.layers\.2\..*it is not there"):
        trainer.adopt(deep)
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "config.json").write_text(json.dumps({}))
    with pytest.raises(VersionError, match="has no safetensors"):
        trainer.adopt(empty)
    assert list_versions(store.folder) == []
    assert trainer.catalog.versions() == []
    trainer.close()


def test_an_open_round_is_finished_first(tiny_model_dir: Path, store: StoreConfig, judge: Judge) -> None:
    trainer = Trainer(trainer_config(judge, groups_per_round=1), store, model_path=tiny_model_dir)
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    judge.out_of_order = True
    with pytest.raises(Exception, match="the round stays open"):
        trainer.run_round()
    with pytest.raises(RoundError, match="round 1 is open"):
        trainer.adopt(tiny_model_dir)
    trainer.close()
