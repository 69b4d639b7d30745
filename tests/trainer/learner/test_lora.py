"""LoRA in rounds: against plain loops, on one and two ranks, resumed, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support_model import make_tiny_model
from support_samples import branching_samples, make_samples
from transformers import AutoModelForCausalLM

from weir.trainer.backend import open_backend
from weir.trainer.errors import TrainerUsageError, VersionError
from weir.trainer.learner.learner import Learner
from weir.trainer.learner.scoring import score_by
from weir.trainer.model.adapter_file import read_published
from weir.trainer.model.lora import ADAPTER_FILE
from weir.trainer.settings.config import TrainerConfig

SETTINGS: dict[str, Any] = {"device": "cpu", "lora_rank": 4, "lora_alpha": 8.0, "lora_targets": ["q_proj", "down_proj"]}
IDS = torch.arange(10, 30)[None]


def learner(folder: Path, base: Path, **more: Any) -> Learner:
    return Learner(folder, TrainerConfig(**(SETTINGS | more)), reference=base)


def train(found: Learner, samples: Any = None, seed: int = 0) -> Any:
    given = samples or make_samples(found.reference, [(3, 9), (8, 5)], seed=seed)
    return found.train(given, fresh_version=0, seed=seed)


def test_gradients_are_those_of_a_plain_low_rank_product_and_only_adapters_have_them(tiny_model_dir: Path) -> None:
    samples = make_samples(tiny_model_dir, [(3, 4), (5, 2)], noise=0.0)
    found = learner(tiny_model_dir, tiny_model_dir)
    with torch.no_grad():
        for name, parameter in found.model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn_like(parameter) * 0.02)
    found.score(samples)
    found.accumulate(samples, fresh_version=0)
    trained = {name: p for name, p in found.model.named_parameters() if p.grad is not None}
    assert sorted({name.rpartition(".lora_")[2] for name in trained}) == ["A.default.weight", "B.default.weight"]
    assert len(trained) == 2 * 2 * 2  # layers, targets, factors

    plain: Any = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    factors = {name: p.detach().clone().requires_grad_() for name, p in trained.items()}
    stems = {name.partition(".lora_")[0].removeprefix("network.") for name in factors}
    effective = {}
    for stem in stems:
        a, b = (factors[f"network.{stem}.lora_{x}.default.weight"] for x in "AB")
        effective[f"{stem}.weight"] = plain.get_parameter(f"{stem}.weight").detach() + 2.0 * b @ a
    for sample in samples:
        ids = torch.from_numpy(sample.ids[None].astype(np.int64))
        logits = torch.func.functional_call(plain, effective, (ids,)).logits[0] / sample.temperature
        logprobs = torch.log_softmax(logits, -1)
        for i, token in enumerate(sample.output_ids):
            logprob = logprobs[len(sample.prompt_ids) + i - 1, int(token)]
            ratio = (logprob - float(sample.old_logprobs[i])).exp()
            kept = torch.minimum(ratio * sample.advantage, ratio.clamp(0.8, 1.28) * sample.advantage)
            (-kept / 6).backward(retain_graph=True)
    for name, parameter in trained.items():
        assert parameter.grad is not None and factors[name].grad is not None
        assert torch.allclose(parameter.grad, factors[name].grad, atol=1e-6, rtol=1e-3), name


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_published_weights_are_merged_and_adapters_are_readable_by_peft(
    tiny_model_dir: Path, tmp_path: Path, precision: str
) -> None:
    from peft import LoraConfig, get_peft_model, set_peft_model_state_dict

    version = tmp_path / "version"
    version.mkdir()
    found = learner(tiny_model_dir, tiny_model_dir, lr=1e-2, precision=precision)
    train(found)
    found.save(version)
    merged: Any = AutoModelForCausalLM.from_pretrained(version, dtype=torch.float32)
    base: Any = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    assert (merged(IDS).logits - base(IDS).logits).abs().max() > 1e-3
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"])
    adapters = torch.load(version / ADAPTER_FILE, weights_only=True)
    with_peft: Any = get_peft_model(base, config)
    named = {name.replace("network.", "base_model.model.").replace(".default", ""): w for name, w in adapters.items()}
    assert not set_peft_model_state_dict(with_peft, named).unexpected_keys
    tolerance = 1e-5 if precision == "float32" else 0.1  # of which the rounding of all weights is the larger part
    assert torch.allclose(merged(IDS).logits, with_peft(IDS).logits, atol=tolerance)
    stored, first = load_file(version / "model.safetensors"), load_file(tiny_model_dir / "model.safetensors")
    assert stored.keys() == first.keys()
    changed = {name for name in first if not torch.equal(stored[name], first[name].to(stored[name].dtype))}
    assert {name.rpartition(".")[0].rpartition(".")[2] for name in changed} == {"q_proj", "down_proj"}


def test_the_reference_is_the_base_with_its_adapters_switched_off(tiny_model_dir: Path) -> None:
    samples = make_samples(tiny_model_dir, [(3, 9), (8, 5)])
    found = learner(tiny_model_dir, tiny_model_dir, kl="k3", kl_coef=0.1, lr=1e-2)
    train(found, samples)
    found.score(samples)
    assert found._reference_logprobs is not None
    plain = score_by(tiny_model_dir, samples, found.config, found.device, found.ranks)
    for call_id, logprobs in plain.items():
        assert np.array_equal(found._reference_logprobs[call_id], logprobs)
    (step,) = train(found, samples)
    assert step.kl_reference > 1e-4  # the trained policy has its adapters on again


def test_going_on_in_memory_and_from_the_version_folder_give_the_same_bits(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    found = learner(tiny_model_dir, tiny_model_dir, lr=1e-2)
    train(found)
    found.save(tmp_path)
    loaded = learner(tmp_path, tiny_model_dir, lr=1e-2)
    assert loaded.num_steps == 1
    for one in (found, loaded):
        train(one, seed=1)
    pairs = zip(found.model.state_dict().values(), loaded.model.state_dict().values(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)


def test_a_round_on_two_ranks_equals_one_in_one_process_and_goes_on_in_one(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    samples = branching_samples(tiny_model_dir)
    more: dict[str, Any] = SETTINGS | {"optimizer_steps": 2, "token_budget": 60, "kl": "k3", "kl_coef": 0.1, "lr": 1e-3}
    weights, published = [], []
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        folder.mkdir()
        backend = open_backend(tiny_model_dir, TrainerConfig(processes=processes, **more), reference=tiny_model_dir)
        backend.train(samples, fresh_version=0, seed=1)
        backend.save(folder)
        adapter = read_published(folder)
        assert (adapter.base, list(adapter.base_files)) == (str(tiny_model_dir), ["model.safetensors"])
        published.append(adapter.tensors)
        on_one = Learner(folder, TrainerConfig(**more), reference=tiny_model_dir)
        train(on_one, seed=2)
        weights.append(on_one.model.state_dict())
    for name, one in weights[0].items():
        assert torch.allclose(one, weights[1][name], atol=1e-6), name
    assert published[0].keys() == published[1].keys()
    assert all(torch.allclose(one, published[1][name], atol=1e-6) for name, one in published[0].items())


def test_folders_and_settings_that_do_not_belong_together_are_refused(tiny_model_dir: Path, tmp_path: Path) -> None:
    version, other = tmp_path / "version", make_tiny_model(tmp_path / "other", seed=1)
    version.mkdir()
    found = learner(tiny_model_dir, tiny_model_dir)
    train(found)
    found.save(version)
    with pytest.raises(VersionError, match="adapters of another form"):
        learner(version, tiny_model_dir, lora_rank=2)
    with pytest.raises(VersionError, match=r"are not those of .*other with their adapters"):
        learner(version, other)
    with pytest.raises(TrainerUsageError, match="was trained with LoRA"):
        Learner(version, TrainerConfig(device="cpu"), reference=tiny_model_dir)
    with pytest.raises(TrainerUsageError, match=r"LoRA begins with .*the newest weights are others"):
        learner(other, tiny_model_dir)
    copied = shutil.copytree(tiny_model_dir, tmp_path / "copied")
    assert learner(copied, tiny_model_dir).num_steps == 0
    with pytest.raises(TrainerUsageError, match="lora_targets names qq_proj, which is no linear layer"):
        learner(tiny_model_dir, tiny_model_dir, lora_targets=["qq_proj"])
    with pytest.raises(ValueError, match="trains a critic"):
        TrainerConfig(algorithm="ppo", lora_rank=4)
