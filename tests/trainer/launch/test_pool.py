"""Ranks that stay between rounds, on one machine and on two: the same bits as new ranks, and what their deaths cost."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support_nodes import Pids, launch_on_two
from support_rank_kills import Armed, Kill
from support_samples import branching_samples, make_samples

from weir.trainer.errors import TrainerError
from weir.trainer.launch import heartbeats
from weir.trainer.launch.pool import RankPool
from weir.trainer.learner.torchrun import TorchrunLearner
from weir.trainer.rounds.loaded_backend import LoadedBackend
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.launch import LaunchConfig
from weir.trainer.versions.version_folder import is_state

SETTINGS: dict[str, Any] = {
    "device": "cpu",
    "processes": 2,
    "algorithm": "ppo",
    "precision": "bfloat16",
    "ema": 0.9,
    "optimizer_steps": 2,
    "lr": 1e-3,
}
CONFIG = TrainerConfig(**SETTINGS)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        file.name: file.read_bytes()
        for file in sorted(folder.iterdir())
        if is_state(file.name) or file.suffix == ".safetensors"
    }


def round_of(backend: Any, folder: Path, seed: int, samples: list[Any]) -> dict[str, bytes]:
    """Train, and make the folder the one that the backend stands at."""
    backend.train(samples, fresh_version=0, seed=seed)
    folder.mkdir()
    backend.save(folder)
    backend.folder = folder
    return contents(folder)


class Stayed:
    """Two rounds on the same ranks."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.samples = [branching_samples(model), make_samples(model, [(4, 6), (7, 3)], seed=1)]
        self.folders = [folder / "first", folder / "second"]
        self.loaded = LoadedBackend(model, folder)
        backend: Any = self.loaded.at(model, CONFIG)
        self.pids = [backend._ranks.call(Pids())]
        self.rounds = []
        for seed in range(2):
            self.rounds.append(round_of(backend, self.folders[seed], seed, self.samples[seed]))
            assert self.loaded.at(self.folders[seed], CONFIG) is backend
            self.pids.append(backend._ranks.call(Pids()))
        assert backend.num_steps == 4


@pytest.fixture(scope="module")
def stayed(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stayed]:
    with pytest.MonkeyPatch.context() as patched:  # for ranks, which unpickle the classes of tests
        patched.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        patched.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        found = Stayed(tiny_model_dir, tmp_path_factory.mktemp("stayed"))
        yield found
        found.loaded.forget()


def test_ranks_stay_and_new_ones_after_a_death_end_at_the_same_bits(stayed: Stayed, tmp_path: Path) -> None:
    assert stayed.pids[0] == stayed.pids[1] == stayed.pids[2]
    assert stayed.loaded.is_at(stayed.folders[1], CONFIG)
    os.kill(stayed.pids[0][1], signal.SIGKILL)
    while stayed.loaded.is_at(stayed.folders[1], CONFIG):
        time.sleep(0.05)
    again: Any = stayed.loaded.at(stayed.folders[0], CONFIG)
    assert again.num_steps == 2
    assert round_of(again, tmp_path / "second", 1, stayed.samples[1]) == stayed.rounds[1]
    pids = again._ranks.call(Pids())
    assert not set(pids) & set(stayed.pids[0])
    stayed.loaded.forget()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_two_machines_end_at_the_bits_of_one_and_one_that_dies_costs_the_attempt(
    stayed: Stayed, tiny_model_dir: Path, tmp_path: Path
) -> None:
    file = tmp_path / "node.toml"
    launch = launch_on_two(start=f"exec weir ranks --node {{node}} --once --config {file}")
    file.write_text(
        f'[trainer]\nprocesses = 2\ndevice = "cpu"\n[trainer.launch]\nnodes = 2\nrendezvous = "{launch.rendezvous}"\n'
    )
    config = TrainerConfig(**SETTINGS, launch=launch)
    pair = TorchrunLearner(tiny_model_dir, config)
    assert pair.address == "127.0.0.1"
    pids = pair._ranks.call(Pids())
    kill = Kill(rank=1, path="weir.trainer.learner.optimizer:Stepper.step", node=True)
    armed: Any = Armed(stayed.samples[0][0], kill)
    with pytest.raises(TrainerError, match="the round stays open and the next start resumes it"):
        pair.train([armed, *stayed.samples[0][1:]], fresh_version=0, seed=0)
    assert not pair.is_alive
    while any(Path(f"/proc/{pid}").exists() for pid in pids):  # Linux kills a rank some moments after its agent
        time.sleep(0.05)
    again = TorchrunLearner(tiny_model_dir, config)
    assert round_of(again, tmp_path / "first", 0, stayed.samples[0]) == stayed.rounds[0]
    again.close()


@pytest.mark.parametrize("frozen", [0, 1])
def test_a_rank_that_neither_works_nor_ends_ends_all_of_them(
    stayed: Stayed, monkeypatch: pytest.MonkeyPatch, frozen: int
) -> None:
    """Stopped between two requests: the next one would wait for it for ever."""
    monkeypatch.setattr(heartbeats, "LOOK_S", 1.0)
    monkeypatch.setattr(heartbeats, "SILENT_LOOKS", 10)
    pool = RankPool(2, "cpu", LaunchConfig(), resumed="and so on")
    pids = pool.call(Pids())
    os.kill(pids[frozen], signal.SIGSTOP)
    with pytest.raises(TrainerError, match=f"since rank {frozen} stood still .*; and so on"):
        pool.call(Pids())
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        time.sleep(0.05)
    assert not pool.is_alive
