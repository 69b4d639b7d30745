"""Learning rates by the model's size: explicit settings win, and what was chosen is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from support_model import make_tiny_model

from weir.trainer.errors import VersionError
from weir.trainer.learner.learner import Learner
from weir.trainer.model.token_model import load_model
from weir.trainer.settings.config import SftConfig, TrainerConfig
from weir.trainer.settings.defaults import TABLE, size_defaults
from weir.trainer.versions.version_folder import num_parameters


@pytest.mark.parametrize(
    ("count", "lr", "sft_lr"),
    [
        (1_700_000, 4e-4, 2e-3),
        (134_515_008, 1e-5, 3e-4),
        (596_049_920, 3e-6, 2e-5),
        (8_190_735_360, 1e-6, 5e-6),
        (30_532_122_624, 1e-6, 5e-6),
    ],
)
def test_the_rate_follows_the_size(count: int, lr: float, sft_lr: float) -> None:
    assert TrainerConfig().with_defaults(lambda: count).lr == lr
    assert SftConfig().with_defaults(lambda: count).lr == sft_lr


def test_adapters_get_ten_times_the_rate_of_all_weights() -> None:
    assert TrainerConfig(lora_rank=4).with_defaults(lambda: 596_049_920).lr == 3e-5
    assert SftConfig(lora_rank=4).with_defaults(lambda: 596_049_920).lr == 2e-4
    assert TrainerConfig(lora_rank=4, lr=1e-6).with_defaults(lambda: pytest.fail("counted")).lr == 1e-6


def test_larger_models_never_get_a_higher_rate_and_every_row_names_its_source() -> None:
    assert [row.up_to for row in TABLE] == sorted(row.up_to for row in TABLE)
    assert [row.lr for row in TABLE] == sorted((row.lr for row in TABLE), reverse=True)
    assert [row.sft_lr for row in TABLE] == sorted((row.sft_lr for row in TABLE), reverse=True)
    assert all(row.source for row in TABLE)
    assert size_defaults(10**15) is TABLE[-1]


def test_a_set_rate_wins_and_nothing_is_counted() -> None:
    config = TrainerConfig(lr=7e-5)
    assert config.with_defaults(lambda: pytest.fail("counted")) is config


def test_parameters_are_counted_from_the_headers(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model")
    weights = load_model(folder, Learner(folder, TrainerConfig(device="cpu")).device).parameters()
    assert num_parameters(folder) == sum(weight.numel() for weight in weights)
    with pytest.raises(VersionError, match="has no safetensors to count parameters in: set lr"):
        num_parameters(tmp_path)


def test_the_learner_steps_with_the_rate_of_the_table_and_pins_it(tiny_model_dir: Path) -> None:
    learner = Learner(tiny_model_dir, TrainerConfig(device="cpu"))
    assert learner.stepper.lr == learner.config.pinned()["lr"] == 4e-4
