"""kill -9 of a rank while it steps, writes weights or writes state: the round is repeated to the same bits.

With `keep_state_every` the state of the versions in between is lost with the process; a new one trains again from the
last state.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support_rank_kills import Armed, Kill
from support_rounds import Judge, add_group, trainer_config

from weir.store.config import StoreConfig
from weir.trainer.errors import TrainerError
from weir.trainer.learner.torchrun import TorchrunLearner
from weir.trainer.trainer import Trainer
from weir.trainer.versions.version_folder import is_state, list_versions, version_path

IN_THE_STEP = Kill(rank=1, path="weir.trainer.learner.optimizer:Stepper.step")
IN_THE_WEIGHTS = Kill(rank=0, path="weir.trainer.model.shared_files:SharedFiles.write", call=5)
IN_THE_STATE = Kill(rank=1, path="weir.trainer.learner.learner:write_state")


def trainer(store: StoreConfig, judge: Judge, model: Path) -> Trainer:
    config = trainer_config(judge, groups_per_round=1, processes=2, keep_state_every=2)
    return Trainer(config, store, model_path=model)


def fill(store: StoreConfig, model: Path) -> None:
    for number in range(2):
        add_group(store, model, f"g{number}", [0.0, 0.3, 1.0])


def contents(store: StoreConfig) -> dict[str, bytes]:
    """Weights and state of all versions."""
    return {
        f"{version.manifest.version}/{name}": (version.path / name).read_bytes()
        for version in list_versions(store.folder)
        for name in version.manifest.files
        if is_state(name) or name.endswith(".safetensors")
    }


def killed_once(monkeypatch: pytest.MonkeyPatch, trained: Trainer, kill: Kill, version: int) -> None:
    """Run a round whose rank dies when it trains from a version."""
    train = TorchrunLearner.train

    def armed(self: TorchrunLearner, samples: Any, **more: Any) -> Any:
        given = [Armed(samples[0], kill), *samples[1:]] if more["fresh_version"] == version else samples
        return train(self, given, **more)

    with monkeypatch.context() as patched:
        patched.setattr(TorchrunLearner, "train", armed)
        with pytest.raises(TrainerError, match="training on 2 processes ended with status"):
            trained.run_round()


def test_rounds_whose_ranks_are_killed_end_at_the_same_bits(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    whole = store.model_copy(update={"root": tmp_path / "whole"})
    for one in (store, whole):
        fill(one, tiny_model_dir)
    undisturbed = trainer(whole, judge, tiny_model_dir)
    assert [undisturbed.run_round() is not None for _ in range(2)] == [True, True]
    undisturbed.close()
    assert [name for name in contents(whole) if is_state(name.partition("/")[2])] == [
        "2/.metadata",
        "2/__0_0.distcp",
        "2/__1_0.distcp",
    ]
    first = trainer(store, judge, tiny_model_dir)
    killed_once(monkeypatch, first, IN_THE_STEP, 0)
    killed_once(monkeypatch, first, IN_THE_WEIGHTS, 0)
    assert not version_path(store.folder, 1).exists()
    assert first.run_round() is not None
    killed_once(monkeypatch, first, IN_THE_STATE, 1)
    first.close()
    second = trainer(store, judge, tiny_model_dir)
    assert second.run_round() is not None
    second.close()
    assert contents(store) == contents(whole)
