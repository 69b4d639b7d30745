"""A second backend, opened by its import path: a round uses only the protocol."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from support_backend import STEPS_FILE
from support_rounds import Judge, add_group, run_in_process, trainer_config
from support_samples import make_samples

from weir.store.config import StoreConfig
from weir.trainer.backend import open_backend
from weir.trainer.errors import TrainerUsageError
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.trainer import Trainer
from weir.trainer.versions.version_folder import version_path

PATH = "support_backend:PlainBackend"


def other_backend(judge: Judge) -> TrainerConfig:
    return trainer_config(judge, groups_per_round=1, backend=PATH, lr=0.1)


def test_rounds_of_another_backend_are_killed_continued_and_repeated_like_any(
    tiny_model_dir: Path, tmp_path: Path, judge: Judge
) -> None:
    config = other_backend(judge)
    stores = [StoreConfig(root=tmp_path / name) for name in ("whole", "killed")]
    for store in stores:
        for group_id in ("g1", "g2"):
            add_group(store, tiny_model_dir, group_id, [0.0, 0.3, 1.0])
    whole, killed = stores
    assert run_in_process(config, whole, tiny_model_dir, rounds=2) == 0
    for step in ("trained", "files_written", "checkpointed"):
        assert run_in_process(config, killed, tiny_model_dir, kill_at=step) == -signal.SIGKILL
    assert run_in_process(config, killed, tiny_model_dir, rounds=None) == 0
    weights = [load_file(version_path(store.folder, 2) / "model.safetensors") for store in stores]
    for name, tensor in weights[0].items():
        assert torch.equal(weights[1][name], tensor)
    assert (version_path(killed.folder, 2) / STEPS_FILE).read_text() == "2"
    trainer = Trainer(config, killed, model_path=tiny_model_dir)
    for number in (1, 2):
        assert trainer.replay(number).differing == []
    trainer.close()


def test_a_step_of_another_backend_makes_what_was_rewarded_likelier(tiny_model_dir: Path) -> None:
    samples = make_samples(tiny_model_dir, [(3, 9), (8, 5)], noise=0.0)
    config = TrainerConfig(backend=PATH, lr=1e-3, device="cpu")
    backend = open_backend(tiny_model_dir, config, reference=tiny_model_dir)
    steps = [backend.train(samples, fresh_version=0, seed=seed)[0] for seed in range(3)]
    assert steps[2].loss < steps[1].loss < steps[0].loss
    assert backend.num_steps == 3


def test_a_backend_that_is_not_there_is_named_before_the_claim(
    tiny_model_dir: Path, judge: Judge, store: StoreConfig
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    trainer = Trainer(trainer_config(judge, backend="nowhere:Backend"), store, model_path=tiny_model_dir)
    with pytest.raises(TrainerUsageError, match="nowhere:Backend"):
        trainer.run_round()
    assert trainer.catalog.open_round() is None
    trainer.close()
    with pytest.raises(ValidationError, match="it belongs to backend = torch"):
        TrainerConfig(backend=PATH, processes=2)


def without_anything(folder: Path, config: TrainerConfig, *, reference: Path) -> object:
    return object()


def raising(folder: Path, config: TrainerConfig, *, reference: Path) -> object:
    raise KeyError("cuda:9")


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("os:system", r"backend = 'os:system', called with .* raised TypeError: system\(\) takes"),
        (f"{__name__}:raising", r"raised KeyError: 'cuda:9' \(test_backend.py line \d+\)"),
        (
            f"{__name__}:without_anything",
            "returned a object that has no folder, config, num_parameters, num_steps, train, save",
        ),
    ],
)
def test_what_is_no_backend_is_named(path: str, told: str, tiny_model_dir: Path) -> None:
    config = TrainerConfig(backend=path, device="cpu")
    with pytest.raises(TrainerUsageError, match=told):
        open_backend(tiny_model_dir, config, reference=tiny_model_dir)
