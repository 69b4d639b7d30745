"""Rounds with `backend = "megatron"`: those of the torch backend, also where a rank is killed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import support_megatron_cpu
import torch
from safetensors.torch import load_file
from support_rank_kills import Armed, Kill
from support_rounds import Judge, add_group, trainer_config

from weir.store.config import StoreConfig
from weir.trainer.backend import open_backend
from weir.trainer.errors import TrainerError, TrainerUsageError
from weir.trainer.learner.saved_state import SavedState, saved_state
from weir.trainer.learner.torchrun import TorchrunLearner
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.trainer import Trainer
from weir.trainer.versions.version_folder import is_state, list_versions, version_path

ROUNDS = 3
IN_THE_STEP = Kill(rank=1, path="weir.trainer.megatron.stepper:MegatronStepper.step")
IN_THE_WEIGHTS = Kill(rank=0, path="weir.trainer.model.shared_files:SharedFiles.write", call=5)
IN_THE_STATE = Kill(rank=1, path="weir.trainer.megatron.state_files:write_state")


@pytest.fixture(autouse=True)
def ranks_on_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site").mkdir()
    for name, value in support_megatron_cpu.in_ranks(tmp_path / "site").items():
        monkeypatch.setenv(name, value)


def trainer(store: StoreConfig, judge: Judge, model: Path, **more: Any) -> Trainer:
    config = trainer_config(judge, groups_per_round=1, optimizer_steps=2, lr=1e-4, **more)
    return Trainer(config, store, model_path=model)


def divided(store: StoreConfig, judge: Judge, model: Path, **more: Any) -> Trainer:
    return trainer(store, judge, model, backend="megatron", processes=2, **({"megatron": {"tensor": 2}} | more))


def weights_of(store: StoreConfig) -> list[dict[str, torch.Tensor]]:
    """The weights of all versions."""
    return [load_file(version.path / "model.safetensors") for version in list_versions(store.folder)]


def assert_near(ours: SavedState | None, theirs: SavedState | None) -> None:
    """Moments, and the critic's weights, of both backends."""
    assert ours is not None and theirs is not None
    assert set(ours) == {name for name in theirs if not name.endswith("lm_head.weight")}
    for name in ours:
        own, other = (state.rows(name, 0, 2**62) for state in (ours, theirs))
        assert torch.allclose(own.float(), other.float(), rtol=1e-3, atol=1e-4), name


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


@pytest.mark.parametrize(
    ("layout", "algorithm"), [({"tensor": 2}, "grpo"), ({"context": 2}, "ppo")], ids=["tensor", "context-critic"]
)
def test_three_rounds_have_the_rewards_and_weights_of_the_torch_backend(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge, tmp_path: Path, layout: dict[str, int], algorithm: str
) -> None:
    divided_so = partial(divided, megatron=layout)
    by_torch = store.model_copy(update={"root": tmp_path / "torch"})
    rewards: list[list[float]] = []
    for one, opened in ((store, divided_so), (by_torch, trainer)):
        for number in range(ROUNDS):
            add_group(one, tiny_model_dir, f"g{number}", [0.0, 0.3, 1.0])
        trained = opened(one, judge, tiny_model_dir, algorithm=algorithm)
        found = [trained.run_round() for _ in range(ROUNDS)]
        assert all(result is not None for result in found)
        rewards.append([result.metrics["reward_mean"] for result in found if result is not None])
        trained.close()
    assert rewards[0] == rewards[1]
    states = [saved_state(list_versions(one.folder)[-1].path) for one in (store, by_torch)]
    assert_near(*states)
    for ours, theirs in zip(weights_of(store), weights_of(by_torch), strict=True):
        assert ours.keys() == theirs.keys()
        for name, tensor in theirs.items():
            assert torch.allclose(ours[name], tensor, rtol=0, atol=1e-4), name
    moved = (
        weights_of(by_torch)[-1]["model.norm.weight"]
        - load_file(tiny_model_dir / "model.safetensors")["model.norm.weight"]
    )
    assert float(moved.abs().max()) > 3e-4, "the weights moved further than they may differ"


def test_rounds_whose_ranks_are_killed_end_at_the_same_bits(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = store.model_copy(update={"root": tmp_path / "whole"})
    for one in (store, whole):
        for number in range(2):
            add_group(one, tiny_model_dir, f"g{number}", [0.0, 0.3, 1.0])
    undisturbed = divided(whole, judge, tiny_model_dir, keep_state_every=2)
    assert [undisturbed.run_round() is not None for _ in range(2)] == [True, True]
    undisturbed.close()
    first = divided(store, judge, tiny_model_dir, keep_state_every=2)
    killed_once(monkeypatch, first, IN_THE_STEP, 0)
    killed_once(monkeypatch, first, IN_THE_WEIGHTS, 0)
    assert not version_path(store.folder, 1).exists()
    assert first.run_round() is not None
    killed_once(monkeypatch, first, IN_THE_STATE, 1)
    first.close()
    second = divided(store, judge, tiny_model_dir, keep_state_every=2)
    assert second.run_round() is not None
    second.close()
    assert contents(store) == contents(whole)


def test_a_layout_that_cannot_divide_the_model_is_refused_before_ranks_start(tiny_model_dir: Path) -> None:
    config = TrainerConfig(backend="megatron", processes=4, megatron={"tensor": 4})  # type: ignore[arg-type]
    with pytest.raises(TrainerUsageError, match="tensor = 4 does not divide the 2 key and value heads"):
        open_backend(tiny_model_dir, config, reference=tiny_model_dir)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (
            {"processes": 3, "megatron": {"tensor": 2}},
            "processes = 3 is no multiple of tensor × pipeline × context = 2",
        ),
        ({"processes": 2, "megatron": {"expert": 4}}, "processes = 2 is no multiple of expert × expert_tensor"),
        ({"megatron": {"chunks": 2}}, "chunks = 2 divides the layers of a pipeline's stages"),
        (
            {"megatron": {"optimizer_offload_fraction": 1.0}, "offload_optimizer": True, "precision": "bfloat16"},
            "optimizer_offload_fraction = 1 keeps all moments in CPU memory",
        ),
        (
            {"megatron": {"optimizer_offload_fraction": 0.5}},
            "optimizer_offload_fraction steps float32 copies of weights in bfloat16: set precision = bfloat16",
        ),
        ({"share_prefixes": False}, "share_prefixes = False has no effect here"),
        ({"backend": "torch", "megatron": {"tensor": 2}}, "it belongs to backend = megatron"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        TrainerConfig(**({"backend": "megatron"} | settings))


def test_ranks_without_cuda_say_so(tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    monkeypatch.delenv("PYTHONPATH")
    config = TrainerConfig(backend="megatron", device="cpu", processes=1)
    with pytest.raises(TrainerError, match="Megatron-core computes on CUDA devices"):
        open_backend(tiny_model_dir, config, reference=tiny_model_dir)
