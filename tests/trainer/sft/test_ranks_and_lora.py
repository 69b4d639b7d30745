"""A cold start on two ranks, in bfloat16, with recomputation and with LoRA: the same result, or as defined."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support_samples import make_rows
from support_sft import renderer

from weir.trainer.settings.config import SftConfig
from weir.trainer.sft.cold_start import SftReport, run_sft
from weir.trainer.sft.resume import SftProgress
from weir.trainer.sft.supervised_learner import SupervisedLearner

LORA: dict[str, Any] = {"lora_rank": 4, "lora_alpha": 8.0, "lora_targets": ["q_proj", "up_proj"]}


def run(model: Path, folder: Path, name: str, **more: Any) -> SftReport:
    data = folder / "data.jsonl"
    words = [f"number {i % 4} is x = {i % 4} " * (1 + i % 3) for i in range(12)]
    data.write_text("".join(json.dumps({"text": text}) + "\n" for text in words))
    given = {"epochs": 2, "lr": 5e-3, "warmup_steps": 1, "device": "cpu", "token_budget": 60, "validation_share": 0.2}
    return run_sft(SftConfig(**(given | more)), data=data, model=model, out=folder / name, renderer=renderer())


def weights(report: SftReport) -> dict[str, torch.Tensor]:
    return load_file(report.version.path / "model.safetensors")


@pytest.mark.parametrize(
    ("more", "ranks"),
    [
        ({}, {"processes": 2}),
        (LORA, {"processes": 2, "context_parallel": 2}),
        ({}, {"processes": 2, "replicas": 2, "offload_weights": True}),
    ],
    ids=["all", "lora, shared tokens", "copies on the host"],
)
def test_two_ranks_learn_what_one_process_does(
    tiny_model_dir: Path, tmp_path: Path, more: dict[str, Any], ranks: dict[str, Any]
) -> None:
    one, two = (run(tiny_model_dir, tmp_path, name, **more, **how) for name, how in (("one", {}), ("two", ranks)))
    assert one.losses == pytest.approx(two.losses, rel=1e-4)
    assert one.validation_losses == pytest.approx(two.validation_losses, rel=1e-4)
    assert len(one.validation_losses) == 2
    theirs = weights(two)
    for name, weight in weights(one).items():
        assert torch.allclose(weight, theirs[name], atol=2e-5), name


def test_recomputation_from_cpu_memory_changes_no_bit_and_bfloat16_is_what_is_written(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    plain = run(tiny_model_dir, tmp_path, "plain")
    again = run(tiny_model_dir, tmp_path, "again", gradient_checkpointing=True, offload_activations=True)
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


RANK = """
import os, pickle, sys, torch
from pathlib import Path
from weir.trainer.learner.distributed import Ranks
from weir.trainer.model.sharded_model import local_rows
from weir.trainer.sft.resume import SftProgress
from weir.trainer.sft.supervised_learner import SupervisedLearner, batches_of
folder, config, rows, progress, num_steps, out = pickle.loads(Path(sys.argv[1]).read_bytes())
ranks = Ranks.of_torchrun(torch.device("cpu"))
learner = SupervisedLearner(config, folder, num_steps, ranks)
for row in rows[:2]:
    progress.losses.append(learner.step([row]))
progress.save(learner.stepper, ranks)
own = sum(local_rows(p).numel() for p in learner.model.parameters())
torch.save([own, learner.read.rows, learner.read.rest, progress.losses], f"{out}.{ranks.rank}")
torch.distributed.barrier()
os._exit(0)
"""


def test_ranks_read_and_keep_their_own_rows_from_which_one_process_goes_on(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    rows = make_rows([9, 5, 12, 7])
    config = SftConfig(device="cpu", lr=5e-3, warmup_steps=1)
    progress = SftProgress.of(tmp_path / "out", "a run")
    job = (tiny_model_dir, config.model_copy(update={"processes": 2}), rows, progress, 4, tmp_path / "told")
    (tmp_path / "job").write_bytes(pickle.dumps(job))
    (tmp_path / "rank.py").write_text(RANK)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*torchrun, str(tmp_path / "rank.py"), str(tmp_path / "job")], check=True)
    numbers = sum(p.numel() for p in SupervisedLearner(config, tiny_model_dir, 4).model.parameters())
    told = [torch.load(tmp_path / f"told.{rank}", weights_only=True) for rank in range(2)]
    assert sum(own for own, *_ in told) == numbers
    for own, rows_read, rest_read, _ in told:
        assert rows_read == 4 * own and rest_read < 10_000, "float32 rows, and headers"
    part = progress.folder / "step-2"
    assert sorted(file.name for file in part.glob("*.distcp")) == ["__0_0.distcp", "__1_0.distcp"]

    whole, resumed = (SupervisedLearner(config, tiny_model_dir, 4) for _ in range(2))
    losses = [whole.step([row]) for row in rows]
    progress.resume(resumed.stepper)
    assert (resumed.stepper.num_steps, progress.losses) == (2, told[0][3])
    assert [*progress.losses, *(resumed.step([row]) for row in rows[2:])] == pytest.approx(losses, rel=1e-4)


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
