"""One process or two, float32 or bfloat16, with or without recomputation: the same weights and files."""

from __future__ import annotations

import os
import pickle
import select
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from support_gradients import whole_gradient
from support_processes import started
from support_ranks import train_on_what_is_read_forever
from support_samples import branching_samples, make_samples

from weir.trainer.backend import open_backend
from weir.trainer.errors import NotFinite, TrainerError
from weir.trainer.launch.pool import FOLDER_PREFIX, SOCKET
from weir.trainer.launch.work_folder import WorkFolder
from weir.trainer.learner.distributed import Ranks
from weir.trainer.learner.learner import Learner
from weir.trainer.learner.optimizer import learning_rate
from weir.trainer.learner.saved_state import saved_state
from weir.trainer.learner.torchrun import TorchrunLearner
from weir.trainer.settings.config import TrainerConfig


def read_whole(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of a folder's state."""
    saved = saved_state(folder)
    assert saved is not None
    return {name: saved.rows(name, 0, 2**62) for name in saved}


def on_ranks(script: str, job: Any, folder: Path) -> None:
    """Run a script on two ranks, with a job in the file that it is given."""
    (folder / "job").write_bytes(pickle.dumps(job))
    (folder / "ranks.py").write_text(script)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*command, str(folder / "ranks.py"), str(folder / "job")], check=True)


@given(st.lists(st.integers(), max_size=9), st.integers(1, 4))
def test_every_part_counts_once_and_all_ranks_make_as_many_passes(parts: list[int], count: int) -> None:
    shares = [Ranks(rank=rank, count=count).share(parts) for rank in range(count)]
    assert len({len(share) for share in shares}) == 1
    assert sorted(part for share in shares for part, counts in share if counts) == sorted(parts)


@pytest.mark.parametrize(
    "more",
    [
        {"algorithm": "ppo", "lr_schedule": "linear", "lr_total_steps": 8, "lr_warmup_steps": 1},
        {
            "ema": 0.9,
            "published_weights": "averaged",
            "precision": "bfloat16",
            "gradient_checkpointing": True,
            "offload_optimizer": True,
        },
    ],
    ids=["ppo", "bfloat16"],
)
def test_a_round_on_two_ranks_goes_on_as_a_round_in_one_process(
    tiny_model_dir: Path, tmp_path: Path, more: dict[str, Any]
) -> None:
    """The first round on two ranks, the second in one process; against both in one process."""
    first, second = branching_samples(tiny_model_dir), make_samples(tiny_model_dir, [(4, 6), (7, 3)], seed=1)
    settings: dict[str, Any] = {"device": "cpu", "optimizer_steps": 2, "token_budget": 60, **more}
    weights, states, figures = [], [], []
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        folder.mkdir()
        config = TrainerConfig(processes=processes, **settings)  # type: ignore[arg-type]
        backend = open_backend(tiny_model_dir, config, reference=tiny_model_dir)
        figures.append(backend.train(first, fresh_version=0, seed=1))
        backend.save(folder)
        learner = Learner(folder, TrainerConfig(**settings))  # type: ignore[arg-type]
        assert learner.stepper.num_steps == 2
        learner.train(second, fresh_version=0, seed=2)
        (folder / "second").mkdir()
        learner.save(folder / "second")
        weights.append(load_file(folder / "second" / "model.safetensors"))
        states.append(read_whole(folder))
    for alone, together in zip(*figures, strict=True):
        assert together.loss == pytest.approx(alone.loss, rel=1e-4, abs=1e-6)
        assert together.grad_norm == pytest.approx(alone.grad_norm, rel=1e-4)
        assert (together.num_tokens, together.tree_ratio) == (alone.num_tokens, pytest.approx(alone.tree_ratio))
    assert weights[0].keys() == weights[1].keys()
    for name, alone_weights in weights[0].items():
        assert torch.allclose(weights[1][name], alone_weights, atol=2e-4 if "precision" not in more else 4e-3)
    assert states[0].keys() - states[1].keys() <= {
        f"policy/{kind}/network.lm_head.weight" for kind in ("average", "weights")
    }
    averages = [name for name in states[0] if "/average/" in name]
    assert bool(averages) == ("ema" in settings)
    for name in averages:
        if name in states[1]:  # ranks keep tied weights once
            assert torch.allclose(states[1][name], states[0][name], atol=2e-4)


def test_ranks_that_end_are_told_of_and_what_is_not_finite_is_not_written(tiny_model_dir: Path, tmp_path: Path) -> None:
    samples = make_samples(tiny_model_dir, [(3, 4), (5, 6)])
    config = TrainerConfig(device="cpu", processes=2)
    alone = Learner(tiny_model_dir, TrainerConfig(device="cpu"))
    assert open_backend(tiny_model_dir, config, reference=tiny_model_dir).num_parameters == alone.num_parameters
    with pytest.raises(TrainerError, match="end of its stderr"):
        open_backend(tmp_path, config, reference=tmp_path).train(samples, fresh_version=0, seed=0)
    broken = shutil.copytree(tiny_model_dir, tmp_path / "broken")
    weights = load_file(broken / "model.safetensors")
    weights["model.norm.weight"][0] = float("nan")
    save_file(weights, broken / "model.safetensors", {"format": "pt"})
    with pytest.raises(NotFinite, match="the step was not taken"):
        open_backend(broken, config, reference=broken).train(samples, fresh_version=0, seed=0)


GUARD = """
import os, pickle, sys, torch
from pathlib import Path
from weir.trainer.errors import NotFinite
from weir.trainer.learner.learner import Learner
from weir.trainer.learner.distributed import Ranks
folder, config, samples, out = pickle.loads(Path(sys.argv[1]).read_bytes())
ranks = Ranks.of_torchrun(torch.device("cpu"))
learner = Learner(folder, config, ranks=ranks)
shares = lambda: [p.detach().to_local().clone() for p in learner.model.parameters()]
before = shares()
try:
    learner.train(samples, fresh_version=0, seed=0)
    told = "stepped"
except NotFinite as error:
    told = str(error)
same = all(torch.equal(old, new) for old, new in zip(before, shares()))
torch.save([told, same, len(learner.stepper.optimizer.state)], f"{out}.{ranks.rank}")
torch.distributed.barrier()
os._exit(0)
"""


def test_a_nan_on_one_rank_alone_stops_all_ranks_before_the_step(tiny_model_dir: Path, tmp_path: Path) -> None:
    good, bad = make_samples(tiny_model_dir, [(3, 4), (5, 6)])
    bad.old_logprobs[2] = np.nan
    config = TrainerConfig(device="cpu", token_budget=1)  # a micro-batch each
    on_ranks(GUARD, (tiny_model_dir, config, [good, bad], tmp_path / "told"), tmp_path)
    for rank in range(2):
        told, same, num_moments = torch.load(tmp_path / f"told.{rank}", weights_only=True)
        assert told.startswith("the step was not taken: loss nan")
        assert (same, num_moments) == (True, 0)


def test_ranks_end_with_the_process_that_is_killed_and_their_folder_with_the_next_start(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    config = TrainerConfig(device="cpu", processes=2)
    train = started(train_on_what_is_read_forever, tiny_model_dir, config, fifo, temporary)
    # After the start: the fork server's socket must not lie in so long a path.
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    writer = os.open(fifo, os.O_WRONLY)  # until a rank reads
    train.kill()
    train.join()
    poll = select.poll()
    poll.register(writer, 0)
    assert poll.poll() == [(writer, select.POLLERR)]  # until none does
    os.close(writer)
    (left,) = temporary.glob(f"{FOLDER_PREFIX}*")
    assert (left / SOCKET).exists()
    folders = [WorkFolder(FOLDER_PREFIX) for _ in range(2)]
    in_use = sorted(folder.path for folder in folders)
    assert sorted(temporary.glob(f"{FOLDER_PREFIX}*")) == in_use, "they are left alone"
    for folder in folders:
        folder.close()
    with pytest.raises(TrainerError, match="end of its stderr"):
        TorchrunLearner(tmp_path, config).train([], fresh_version=0, seed=0)  # there is no model
    assert list(temporary.glob(f"{FOLDER_PREFIX}*")) == []


def test_the_gradient_in_bfloat16_is_near_that_of_float32(tiny_model_dir: Path) -> None:
    samples = branching_samples(tiny_model_dir)
    gradients = []
    for precision in ("float32", "bfloat16"):
        config = TrainerConfig(algorithm="cispo", device="cpu", precision=precision)  # type: ignore[arg-type]
        gradients.append(whole_gradient(tiny_model_dir, tiny_model_dir, config, samples)["policy"])
    exact, rounded = gradients
    assert float((rounded - exact).norm()) <= 5e-2 * float(exact.norm())


def test_bfloat16_is_published_and_float32_is_gone_on_with(tiny_model_dir: Path, tmp_path: Path) -> None:
    samples = branching_samples(tiny_model_dir)
    learner = Learner(tiny_model_dir, TrainerConfig(device="cpu", precision="bfloat16"))
    learner.train(samples, fresh_version=0, seed=0)
    learner.save(tmp_path)
    published = load_file(tmp_path / "model.safetensors")
    assert {tensor.dtype for tensor in published.values()} == {torch.bfloat16}
    loaded = Learner(tmp_path, learner.config)
    for ours, theirs in zip(learner.model.parameters(), loaded.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        assert theirs.dtype == torch.float32


@pytest.mark.parametrize("setting", ["gradient_checkpointing", "offload_optimizer"])
def test_what_saves_memory_changes_no_bit(tiny_model_dir: Path, setting: str) -> None:
    samples = branching_samples(tiny_model_dir)
    learners = [Learner(tiny_model_dir, TrainerConfig(device="cpu", **{setting: on})) for on in (False, True)]
    for learner in learners:
        learner.train(samples, fresh_version=0, seed=0)
        learner.train(samples, fresh_version=0, seed=1)
    for plain, saving in zip(learners[0].model.parameters(), learners[1].model.parameters(), strict=True):
        assert torch.equal(plain, saving)


@given(st.integers(0, 300), st.sampled_from(["linear", "cosine"]))
def test_the_learning_rate_warms_up_and_falls_to_its_floor(step: int, schedule: str) -> None:
    def rate(at: int) -> float:
        given = {"schedule": schedule, "warmup_steps": 10, "total_steps": 201, "min_ratio": 0.1}
        return learning_rate(at, 1.0, **given)  # type: ignore[arg-type]

    assert 0 < rate(step) <= 1.0
    if step < 10:
        assert rate(step) == pytest.approx((step + 1) / 10)
    else:
        assert rate(step + 1) <= rate(step)
    if step >= 201:
        assert rate(step) == pytest.approx(0.1)
