"""Version folders that ranks write and read, each its own rows: the same bytes on any number of processes."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from support_model import make_tiny_model
from support_rank_jobs import RankJob, run_jobs
from support_samples import branching_samples, make_samples
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.serialization import get_crc32_options
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from weir.trainer.errors import VersionError
from weir.trainer.learner.learner import Learner
from weir.trainer.learner.rank_files import write_state
from weir.trainer.learner.saved_state import saved_state
from weir.trainer.model.memory import FLOAT32, TrainingPlan, training_memory
from weir.trainer.model.shape import read_shape
from weir.trainer.settings.config import TrainerConfig

TOKENS = 128
SETTINGS: dict[str, Any] = {
    "device": "cpu",
    "algorithm": "ppo",
    "ema": 0.9,
    "published_weights": "averaged",
    "precision": "bfloat16",
    "kl": "k3",
    "kl_coef": 0.1,
    "kl_target": 0.01,
    "lr": 1e-3,
}
EVERYTHING = TrainerConfig(**SETTINGS)
CODED = TrainerConfig(device="cpu", algorithm="ppo", optimizer="adamw_8bit", lr=1e-3)
PLAIN = TrainerConfig(device="cpu", token_budget=TOKENS, share_prefixes=False)


def state_of(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of a folder's state, without the second names of tied weights."""
    saved = saved_state(folder)
    assert saved is not None
    return {name: saved.rows(name, 0, 2**62) for name in saved if not name.endswith("lm_head.weight")}


class Moved:
    """Folders that one process, two ranks, four ranks and one process wrote, each from the one before."""

    def __init__(self, folder: Path) -> None:
        self.folders = [folder / name for name in ("one", "two", "four", "back")]
        model = make_tiny_model(folder / "model", vocab_size=517, tied=True)  # rows that four ranks cannot share evenly
        wide = make_tiny_model(folder / "wide", vocab_size=2048, tied=False, hidden_size=256, num_layers=6)
        self.wide = read_shape(wide)
        self.experts = folder / "experts"
        _make_experts(self.experts)
        first = Learner(model, EVERYTHING)
        first.train(branching_samples(model), fresh_version=0, seed=0)
        self.folders[0].mkdir()
        first.save(self.folders[0])
        samples = make_samples(wide, [(TOKENS // 2, TOKENS // 2)] * 4)
        trained = folder / "trained"
        self.of_experts = folder / "of_experts"
        self.coded = [folder / f"coded_{name}" for name in ("one", "two", "four")]
        coded = Learner(model, CODED)
        coded.train(branching_samples(model), fresh_version=0, seed=0)
        self.coded[0].mkdir()
        coded.save(self.coded[0])
        jobs = [
            RankJob(folder=self.folders[0], out=self.folders[1], config=EVERYTHING, reference=model),
            RankJob(folder=wide, out=trained, config=PLAIN, samples=samples),
            RankJob(folder=self.experts, out=self.of_experts, config=PLAIN),
        ]
        self.rounded = [folder / "gathers_whole", folder / "gathers_half"]
        for out, gathered in zip(self.rounded, ("float32", "bfloat16"), strict=True):
            changes = {"precision": "bfloat16", "processes": 2, "gather_precision": gathered}
            config = TrainerConfig(**(PLAIN.model_dump(exclude_unset=True) | changes))
            jobs.append(RankJob(folder=wide, out=out, config=config, samples=samples))
        jobs.append(RankJob(folder=self.coded[0], out=self.coded[1], config=CODED, reference=model))
        self.by_two, self.trained, _, *self.in_half, _ = run_jobs(jobs, 2, folder)
        again = RankJob(folder=self.folders[1], out=self.folders[2], config=EVERYTHING, reference=model)
        coded_again = RankJob(folder=self.coded[1], out=self.coded[2], config=CODED, reference=model)
        self.by_four, _ = run_jobs([again, coded_again], 4, folder)
        last = Learner(self.folders[2], EVERYTHING)
        self.folders[3].mkdir()
        last.save(self.folders[3])


def _make_experts(folder: Path) -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    torch.manual_seed(0)
    config = Qwen3MoeConfig(vocab_size=512, num_experts=3, num_experts_per_tok=2, **sizes, **heads)
    Qwen3MoeForCausalLM(config).save_pretrained(folder)


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Moved:
    return Moved(tmp_path_factory.mktemp("ranks"))


def test_state_and_weights_are_the_same_bits_on_one_two_and_four_processes(moved: Moved) -> None:
    first = state_of(moved.folders[0])
    assert {name.partition("/")[0] for name in first} == {"policy", "critic"}
    assert "policy/kl_coef" in first and any(name.startswith("policy/average/") for name in first)
    for folder in moved.folders[1:]:
        found = state_of(folder)
        assert found.keys() == first.keys()
        for name, tensor in first.items():
            assert torch.equal(found[name], tensor), name
        for file in ("model.safetensors", "config.json", "generation_config.json", "tokenizer.json"):
            assert (folder / file).read_bytes() == (moved.folders[0] / file).read_bytes()
    assert sorted(file.name for file in moved.folders[2].glob("*.distcp")) == [f"__{k}_0.distcp" for k in range(4)]
    assert not list(moved.folders[2].glob("*.pt")), "nothing was written by one rank for all"


def test_moments_of_8_bits_are_the_same_codes_on_one_two_and_four_processes(moved: Moved) -> None:
    first = state_of(moved.coded[0])
    codes = [name for name, tensor in first.items() if tensor.dtype == torch.uint8]
    assert {name.split("/")[0] for name in codes} == {"policy", "critic"}
    for folder in moved.coded[1:]:
        found = state_of(folder)
        assert found.keys() == first.keys()
        for name, tensor in first.items():
            assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), name


@pytest.mark.parametrize("ranks", [2, 4])
def test_no_rank_reads_rows_that_it_does_not_own(moved: Moved, ranks: int) -> None:
    reports = moved.by_two if ranks == 2 else moved.by_four
    saved = saved_state(moved.folders[0])
    assert saved is not None
    for report in reports:
        published = 2 * (report.policy_numbers + report.critic_numbers)  # the critic begins with the policy's
        state = FLOAT32 * (4 * report.policy_numbers + 3 * report.critic_numbers)
        remainder = report.rows_read - published - state
        assert abs(remainder) < 2048, "step counts, and the critic's head, which no model file holds"
        assert report.rest_read < 2048 * len(list(saved)), "headers of files and directories of tensors"
    numbers = sum(saved.rows(name, 0, 2**62).numel() for name in saved if name.startswith("policy/exp_avg/"))
    assert sum(report.policy_numbers for report in reports) == numbers


def test_experts_are_stored_one_by_one_as_they_were(moved: Moved) -> None:
    files = [(folder / "model.safetensors").read_bytes() for folder in (moved.experts, moved.of_experts)]
    assert files[0] == files[1]


def test_no_rank_holds_more_than_the_plan_says(moved: Moved) -> None:
    memory = training_memory(moved.wide, TrainingPlan(processes=2, tokens=TOKENS))
    buffers = 4096  # of rotary embeddings
    for report in moved.trained:
        assert memory.weights <= report.loading <= memory.phases["load"] + buffers
        assert 0.75 * memory.peak <= report.training <= memory.peak
        largest = 2 * FLOAT32 * moved.wide.vocabulary * moved.wide.hidden // 2
        assert report.saving <= memory.phases["step"] + largest + buffers


def test_gathering_in_half_takes_less_memory_and_keeps_float32_weights(moved: Moved) -> None:
    plans = [
        TrainingPlan(processes=2, tokens=TOKENS, precision="bfloat16", gathers_half=gathers)
        for gathers in (False, True)
    ]
    memories = [training_memory(moved.wide, plan) for plan in plans]
    for memory, reports in zip(memories, moved.in_half, strict=True):
        assert all(report.training <= memory.peak for report in reports)
    gathered, rounded = ([report.training for report in reports] for reports in moved.in_half)
    assert all(half < whole for whole, half in zip(gathered, rounded, strict=True))
    state = state_of(moved.rounded[1])
    assert all(tensor.dtype == torch.float32 for name, tensor in state.items() if "/weights/" in name)


def test_torch_reads_a_checkpoint_and_its_settings_are_as_they_were(tmp_path: Path) -> None:
    numbers = {"policy/exp_avg/a": torch.arange(6.0).reshape(3, 2), "policy/step/a": torch.tensor(2.0)}
    write_state(numbers, tmp_path)
    assert get_crc32_options()
    dcp_to_torch_save(tmp_path, tmp_path / "whole.pt")
    whole = torch.load(tmp_path / "whole.pt", weights_only=True)
    assert whole.keys() == numbers.keys()
    assert all(torch.equal(whole[name], tensor) for name, tensor in numbers.items())


class Harmful:
    """What runs a command when it is unpickled."""

    def __reduce__(self) -> Any:
        return eval, ("1 + 1",)


def test_an_index_that_names_other_things_is_refused(moved: Moved, tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(pickle.dumps(Harmful()))
    with pytest.raises(VersionError, match=r"names builtins\.eval, which no checkpoint does"):
        saved_state(tmp_path)
    (tmp_path / ".metadata").write_bytes((moved.folders[1] / ".metadata").read_bytes()[:-40])
    with pytest.raises(VersionError, match="cannot load the optimiser's state"):
        saved_state(tmp_path)
