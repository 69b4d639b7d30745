"""A cold start on two ranks, in bfloat16, with recomputation and with LoRA: the same result, or as defined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support_sft import renderer

from weir.trainer.settings.config import SftConfig
from weir.trainer.sft.cold_start import SftReport, run_sft

LORA: dict[str, Any] = {"lora_rank": 4, "lora_alpha": 8.0, "lora_targets": ["q_proj", "up_proj"]}


def run(model: Path, folder: Path, name: str, **more: Any) -> SftReport:
    data = folder / "data.jsonl"
    words = [f"number {i % 4} is x = {i % 4} " * (1 + i % 3) for i in range(12)]
    data.write_text("".join(json.dumps({"text": text}) + "\n" for text in words))
    given = {"epochs": 2, "lr": 5e-3, "warmup_steps": 1, "device": "cpu", "token_budget": 60, "validation_share": 0.2}
    return run_sft(SftConfig(**(given | more)), data=data, model=model, out=folder / name, renderer=renderer())


def weights(report: SftReport) -> dict[str, torch.Tensor]:
    return load_file(report.version.path / "model.safetensors")


@pytest.mark.parametrize("more", [{}, LORA], ids=["all", "lora"])
def test_two_ranks_learn_what_one_process_does(tiny_model_dir: Path, tmp_path: Path, more: dict[str, Any]) -> None:
    one, two = (run(tiny_model_dir, tmp_path, str(n), processes=n, **more) for n in (1, 2))
    assert one.losses == pytest.approx(two.losses, rel=1e-4)
    assert one.validation_losses == pytest.approx(two.validation_losses, rel=1e-4)
    assert len(one.validation_losses) == 2
    theirs = weights(two)
    for name, weight in weights(one).items():
        assert torch.allclose(weight, theirs[name], atol=2e-5), name


def test_recomputation_changes_no_bit_and_bfloat16_is_what_is_written(tiny_model_dir: Path, tmp_path: Path) -> None:
    plain = run(tiny_model_dir, tmp_path, "plain")
    again = run(tiny_model_dir, tmp_path, "again", gradient_checkpointing=True)
    half = run(tiny_model_dir, tmp_path, "half", precision="bfloat16")
    assert plain.losses == again.losses
    assert all(torch.equal(weight, weights(again)[name]) for name, weight in weights(plain).items())
    assert {weight.dtype for weight in weights(half).values()} == {torch.bfloat16}
    assert half.losses == pytest.approx(plain.losses, rel=0.05)


def test_lora_changes_the_targets_alone_and_learns(tiny_model_dir: Path, tmp_path: Path) -> None:
    report = run(tiny_model_dir, tmp_path, "lora", epochs=6, lr=2e-2, **LORA)
    first, found = load_file(tiny_model_dir / "model.safetensors"), weights(report)
    assert found.keys() == first.keys()
    changed = {name for name in first if not torch.equal(found[name], first[name])}
    assert {name.split(".")[-2] for name in changed} == {"q_proj", "up_proj"}
    assert report.losses[-1] < report.losses[0] - 0.1


class Killed(Exception):
    """Raised by a test to end a run."""


def test_a_killed_run_with_lora_goes_on_to_the_same_bits(tiny_model_dir: Path, tmp_path: Path) -> None:
    def kill(step: int) -> None:
        if step == 2:
            raise Killed

    whole = run(tiny_model_dir, tmp_path, "whole", checkpoint_steps=1, precision="bfloat16", **LORA)
    config = SftConfig.model_validate_json(
        SftConfig(
            epochs=2,
            lr=5e-3,
            warmup_steps=1,
            device="cpu",
            token_budget=60,
            validation_share=0.2,
            checkpoint_steps=1,
            precision="bfloat16",
            **LORA,
        ).model_dump_json()
    )
    out: dict[str, Any] = {"data": tmp_path / "data.jsonl", "model": tiny_model_dir, "out": tmp_path / "killed"}
    with pytest.raises(Killed):
        run_sft(config, renderer=renderer(), on_step=kill, **out)
    resumed = run_sft(config, renderer=renderer(), **out)
    assert resumed.losses == whole.losses
    assert all(torch.equal(weight, weights(resumed)[name]) for name, weight in weights(whole).items())
