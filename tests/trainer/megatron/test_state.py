"""Version folders that a layout writes are continued by other layouts and by the torch backend, to the same bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support_gradients import drifted_samples
from support_megatron import StateJob, StateResult, run_jobs
from support_megatron_models import make_dense, make_latent, make_moe

from weir.trainer.credit.samples import Sample
from weir.trainer.learner.learner import Learner
from weir.trainer.learner.saved_state import saved_state
from weir.trainer.model.division import Division, held_numbers
from weir.trainer.model.ops.eight_bit import SCALE, decoded
from weir.trainer.model.shape import read_shape
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.megatron import MegatronSettings

EVERYTHING = TrainerConfig(
    device="cpu",
    algorithm="ppo",
    ema=0.9,
    published_weights="averaged",
    precision="bfloat16",
    kl="k3",
    kl_coef=0.1,
    kl_target=0.01,
    lr=1e-3,
    optimizer_steps=2,
    offload_optimizer=True,
)
PLAIN = TrainerConfig(device="cpu", algorithm="ppo", lr=1e-3, optimizer_steps=2)

# Where each model's state goes from the layout that trained, one after the other: on four processes, last on two.
HALF = {"optimizer_offload_fraction": 0.5}
CHAINS: dict[str, list[dict[str, Any]]] = {
    "tied": [
        {"tensor": 2, "pipeline": 2},
        {"tensor": 4},
        {"tensor": 2, "context": 2, "optimizer_offload_fraction": 1.0},
        {"pipeline": 2, "chunks": 2},
    ],
    "moe": [
        {"pipeline": 2, "expert": 2},
        {"tensor": 2, "expert_tensor": 2},
        {"context": 2, "expert": 4},
        {"expert": 2},
    ],
    "latent": [
        {"pipeline": 2, "expert": 2} | HALF,
        {"tensor": 2, "expert": 4},
        {"context": 2, "expert": 2},
        {"tensor": 2},
    ],
}


def state_of(folder: Path) -> dict[str, torch.Tensor]:
    """All trained tensors of a folder's state: one process keeps tied heads and experts' biases there as well."""
    saved = saved_state(folder)
    assert saved is not None
    beside = ("lm_head.weight", "e_score_correction_bias")
    return {name: saved.rows(name, 0, 2**62) for name in saved if not name.endswith(beside)}


class Chains:
    """The folders of each chain, whose last one the torch backend wrote; and what its processes read for each."""

    def __init__(self, folder: Path) -> None:
        made = {"tied": make_dense, "moe": make_moe, "latent": make_latent}
        models = {name: make(folder / f"first-{name}") for name, make in made.items()}
        self.models = models
        self.folders = {name: [folder / f"{name}-{at}" for at in range(5)] for name in CHAINS}
        self.read: dict[str, list[list[StateResult]]] = {name: [] for name in CHAINS}
        steps = [(name, number) for number in range(4) for name in CHAINS]
        for processes, chosen in ((4, steps[: -len(CHAINS)]), (2, steps[-len(CHAINS) :])):
            jobs = [self._job(name, number, models[name]) for name, number in chosen]
            jobs.append(self._on_devices(folder) if processes == 4 else self._of_8_bits(folder))
            for (name, _), read in zip(chosen, run_jobs(jobs, processes, folder), strict=False):
                self.read[name].append(read)
        for name in CHAINS:
            *_, last, back = self.folders[name]
            learner = Learner(last, config_of(name), reference=models[name])
            assert learner.num_steps == 2
            back.mkdir()
            learner.save(back)

    def _on_devices(self, folder: Path) -> StateJob:
        """Trains as the first layout of a chain, with all weights stepped where they are computed with."""
        first = self._job("latent", 0, self.models["latent"])
        self.on_devices = folder / "on-devices"
        layout = first.layout.model_copy(update={"optimizer_offload_fraction": 0.0})
        return replace(first, out=self.on_devices, layout=layout)

    def _of_8_bits(self, folder: Path) -> StateJob:
        """Writes what the torch backend's AdamW of 8 bits left."""
        self.coded = [folder / "coded", folder / "of-coded"]
        config = PLAIN.model_copy(update={"optimizer": "adamw_8bit"})
        learner = Learner(self.models["moe"], config)
        learner.train(samples_of(self.models["moe"]), fresh_version=2, seed=0)
        self.coded[0].mkdir()
        learner.save(self.coded[0])
        first, out = self.coded
        layout = MegatronSettings(tensor=2)
        return StateJob(folder=first, out=out, layout=layout, reference=self.models["moe"], config=PLAIN, samples=[])

    def _job(self, name: str, number: int, model: Path) -> StateJob:
        return StateJob(
            folder=self.folders[name][number - 1] if number else model,
            out=self.folders[name][number],
            layout=MegatronSettings(**CHAINS[name][number]),
            reference=model,
            config=config_of(name),
            samples=samples_of(model) if number == 0 else [],
        )


def samples_of(model: Path) -> list[Sample]:
    """What the first layout of a chain trains on."""
    return drifted_samples(model, TrainerConfig(device="cpu"), 1)[:6]


def config_of(name: str) -> TrainerConfig:
    """The settings of a chain."""
    return PLAIN if name == "moe" else EVERYTHING


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> Chains:
    return Chains(tmp_path_factory.mktemp("state"))


@pytest.mark.parametrize("name", CHAINS)
def test_state_and_weights_are_the_same_bits_by_every_layout_and_by_the_torch_backend(
    chains: Chains, name: str
) -> None:
    first, *others = chains.folders[name]
    state, weights = state_of(first), load_file(first / "model.safetensors")
    assert {key.split("/")[0] for key in state} == {"policy", "critic"}
    kinds = {key.split("/")[1] for key in state if key.startswith("policy/")}
    assert kinds >= {"exp_avg", "exp_avg_sq", "step", "num_steps"}
    assert ({"average", "weights", "kl_coef"} <= kinds) == (name != "moe")
    assert float(next(v for key, v in state.items() if "/exp_avg_sq/" in key).abs().max()) > 0
    for folder in others:
        found = state_of(folder)
        assert found.keys() == state.keys()
        for key, tensor in state.items():
            assert torch.equal(found[key].float(), tensor.float()), (folder.name, key)
        published = load_file(folder / "model.safetensors")
        assert published.keys() == weights.keys()
        for key, tensor in weights.items():
            assert torch.equal(published[key], tensor), (folder.name, key)


@pytest.mark.parametrize("name", CHAINS)
def test_a_process_reads_of_the_state_what_it_owns(chains: Chains, name: str) -> None:
    of_weights, kinds = (4, 2) if name == "moe" else (2, 4)  # bytes; moments, and with the average stepped weights
    for results, layout in list(zip(chains.read[name], CHAINS[name], strict=True))[1:]:
        whole_rows = layout.get("tensor", 1) * layout.get("expert_tensor", 1)  # of matrices that are cut by columns
        for result in results:
            least = of_weights * (result.numbers + result.critic_numbers)
            least += 4 * (kinds * result.owned + 3 * result.critic_owned)  # the critic's moments and weights
            boundaries = 4 * (kinds + 3) * 64 * 200  # a row at either end of each parameter's range
            assert 0.95 * least <= result.bytes_read <= whole_rows * least + boundaries


@pytest.mark.parametrize("name", CHAINS)
def test_the_plan_knows_how_many_weights_a_process_holds_and_owns(chains: Chains, name: str) -> None:
    shape = read_shape(chains.folders[name][0])
    for results, layout in zip(chains.read[name], CHAINS[name], strict=True):
        planned = held_numbers(shape, Division(processes=len(results), **MegatronSettings(**layout).sizes))
        for most, held in (
            (max(result.numbers for result in results), planned.dense + planned.experts),
            (max(result.owned for result in results), planned.owned),
        ):
            assert held == pytest.approx(most, rel=0.05), (layout, most, held)


def test_the_layout_that_trained_has_the_state_of_the_torch_backend(chains: Chains, tmp_path: Path) -> None:
    learner = Learner(chains.models["moe"], PLAIN)
    learner.train(samples_of(chains.models["moe"]), fresh_version=2, seed=0)
    learner.save(tmp_path)
    expected, found = state_of(tmp_path), state_of(chains.folders["moe"][0])
    assert found.keys() == expected.keys()
    for key, tensor in expected.items():
        assert torch.allclose(found[key].float(), tensor.float(), rtol=1e-3, atol=1e-4), key


def test_weights_that_are_stepped_in_cpu_memory_are_those_that_a_device_steps(chains: Chains) -> None:
    expected, found = state_of(chains.on_devices), state_of(chains.folders["latent"][0])
    assert found.keys() == expected.keys()
    for key, tensor in expected.items():
        assert torch.allclose(found[key].float(), tensor.float(), rtol=1e-3, atol=1e-6), key


@pytest.mark.parametrize("name", CHAINS)
def test_so_large_a_share_is_stepped_in_cpu_memory_as_the_layout_says(chains: Chains, name: str) -> None:
    for results, layout in zip(chains.read[name], CHAINS[name], strict=True):
        share = layout.get("optimizer_offload_fraction", 0.0)
        for result in results:
            assert share * result.owned <= result.on_host <= result.owned, (name, layout)
            assert (result.on_host == 0, result.on_host == result.owned) == (share == 0, share == 1), (name, layout)


def test_moments_of_8_bits_are_read_as_the_numbers_that_they_stand_for(chains: Chains) -> None:
    coded, found = map(state_of, chains.coded)
    codes = [name for name, tensor in coded.items() if tensor.dtype == torch.uint8]
    assert any(".experts." in name for name in codes) and any(name.startswith("critic/") for name in codes)
    for name in codes:
        part, kind, parameter = name.split("/")
        expected = decoded(coded[name], coded[f"{part}/{kind}{SCALE}/{parameter}"], kind)
        assert torch.equal(found[name], expected), name
