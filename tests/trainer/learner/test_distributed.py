"""Ways to divide work among ranks: copies of the sharded model (HSDP), weights in CPU memory, shared tokens (CP)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support_megatron_models import make_moe
from support_mixture import routed_by_chance
from support_model import make_tiny_model
from support_rank_jobs import RankJob, RankReport, run_jobs
from support_samples import branching_samples

from weir.trainer.backend import open_backend
from weir.trainer.credit.samples import Sample
from weir.trainer.learner.learner import Learner
from weir.trainer.learner.saved_state import saved_state
from weir.trainer.learner.torchrun import TorchrunLearner
from weir.trainer.settings.config import TrainerConfig

PLAIN: dict[str, Any] = {"device": "cpu", "ema": 0.5, "lr": 1e-3, "token_budget": 60}
HALF: dict[str, Any] = PLAIN | {"precision": "bfloat16", "published_weights": "averaged", "kl": "k3", "kl_coef": 0.1}
RECOMPUTED = {"gradient_checkpointing": True, "offload_activations": True}
SMOOTH = HALF | {"algorithm": "cispo"}  # where rounding puts no token on either side of a bound
ON_HOST = {"offload_weights": True}
TWO = {"processes": 2}
COPIES = {"processes": 4, "replicas": 2}
SHARED = {"context_parallel": 2}
ROUTED = PLAIN | {"routing_replay": True}
ROUNDING = 2e-7  # of float32 near one


def state_of(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of a folder's state, without the second names of tied weights."""
    saved = saved_state(folder)
    assert saved is not None
    return {name: saved.rows(name, 0, 2**62) for name in saved if not name.endswith("lm_head.weight")}


class Divided:
    """The same two rounds in one process and on ranks, by name; "again" is "copies", opened and written by copies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = make_tiny_model(folder / "model", vocab_size=517, tied=True)  # rows that cannot be shared evenly
        self.samples = branching_samples(self.model)
        self.experts = make_moe(folder / "experts", output_router_logits=True, router_aux_loss_coef=0.5)
        alone = {
            "one": PLAIN,
            "one_half": HALF,
            "one_smooth": SMOOTH,
            "one_of_experts": PLAIN,
            "one_of_experts_routed": ROUTED,
        }
        for name, settings in alone.items():
            model = self._model_of(name)
            learner = Learner(model, TrainerConfig(**settings), reference=model)
            for seed in range(2):
                learner.train(self._samples_of(name), fresh_version=0, seed=seed)
            (folder / name).mkdir()
            learner.save(folder / name)
        self.reports: dict[str, list[RankReport]] = {}
        self._run(2, {"two": PLAIN | TWO, "two_host": PLAIN | TWO | ON_HOST, "shared": PLAIN | TWO | SHARED})
        self._run(
            4,
            {
                "copies": PLAIN | COPIES,
                "copies_half": HALF | COPIES | ON_HOST | RECOMPUTED,
                "again": PLAIN | COPIES,
                "shared_copies": PLAIN | COPIES | SHARED,
                "shared_of_experts": PLAIN | COPIES | SHARED,
                "shared_of_experts_routed": ROUTED | COPIES | SHARED,
                "shared_smooth": SMOOTH | {"processes": 4, "context_parallel": 4} | RECOMPUTED,
            },
        )

    def _run(self, ranks: int, settings: dict[str, dict[str, Any]]) -> None:
        jobs = [
            RankJob(
                folder=self.folder / "copies" if name == "again" else self._model_of(name),
                out=self.folder / name,
                config=TrainerConfig(**own),
                samples=[] if name == "again" else self._samples_of(name),
                reference=self._model_of(name),
            )
            for name, own in settings.items()
        ]
        self.reports |= zip(settings, run_jobs(jobs, ranks, self.folder), strict=True)

    def _samples_of(self, name: str) -> list[Sample]:
        return routed_by_chance(self.experts, self.samples) if "routed" in name else self.samples

    def _model_of(self, name: str) -> Path:
        return self.experts if "experts" in name else self.model


@pytest.fixture(scope="module")
def divided(tmp_path_factory: pytest.TempPathFactory) -> Divided:
    return Divided(tmp_path_factory.mktemp("divided"))


def assert_same(folder: Path, other: Path, *, rtol: float = 1e-5, atol: float = ROUNDING) -> None:
    first, second = state_of(folder), state_of(other)
    assert first.keys() == second.keys()
    assert any("/average/" in name for name in first) and any("/exp_avg_sq/" in name for name in first)
    for name, tensor in first.items():
        assert torch.allclose(second[name], tensor, rtol=rtol, atol=atol), name
    published, theirs = (load_file(path / "model.safetensors") for path in (folder, other))
    assert published.keys() == theirs.keys()
    for name, tensor in published.items():
        assert torch.allclose(theirs[name].float(), tensor.float(), rtol=rtol, atol=atol), name


@pytest.mark.parametrize("name", ["two", "two_host", "copies"])
def test_each_way_gives_the_numbers_of_one_process_within_rounding(divided: Divided, name: str) -> None:
    assert_same(divided.folder / "one", divided.folder / name)
    trained, first = (load_file(folder / "model.safetensors") for folder in (divided.folder / name, divided.model))
    assert any((trained[tensor] - first[tensor]).abs().max() > 1e-3 for tensor in first), "two steps of 1e-3"


def test_copies_in_cpu_memory_compute_in_bfloat16_with_a_reference_as_one_process_does(divided: Divided) -> None:
    assert_same(divided.folder / "one_half", divided.folder / "copies_half", rtol=1e-2, atol=4e-3)


@pytest.mark.parametrize(
    ("alone", "shared", "tolerance"),
    [
        ("one", "shared", 1e-5),
        ("one", "shared_copies", 1e-5),
        ("one_smooth", "shared_smooth", 5e-2),
        ("one_of_experts", "shared_of_experts", 1e-4),  # with their load-balancing loss
        ("one_of_experts_routed", "shared_of_experts_routed", 1e-4),
    ],
)
def test_tokens_that_ranks_share_have_the_gradients_of_one_process(
    divided: Divided, alone: str, shared: str, tolerance: float
) -> None:
    expected, found = (state_of(divided.folder / name) for name in (alone, shared))
    assert found.keys() == expected.keys()
    for name in (name for name in expected if "/exp_avg/" in name):
        assert float((found[name] - expected[name]).norm()) <= tolerance * float(expected[name].norm()), name


def test_a_step_on_the_cpu_is_the_same_step(divided: Divided) -> None:
    assert_same(divided.folder / "two", divided.folder / "two_host")


def test_each_copy_holds_the_model_and_one_of_them_writes_it(divided: Divided) -> None:
    whole, *halves = (sum(r.policy_numbers for r in divided.reports[name]) for name in ("two", "copies"))
    assert halves == [2 * whole]
    sizes = {
        name: sum(file.stat().st_size for file in (divided.folder / name).glob("*.distcp"))
        for name in ("two", "copies")
    }
    assert sizes["copies"] < 1.2 * sizes["two"]


def test_copies_continue_from_what_they_wrote_to_the_same_bits(divided: Divided) -> None:
    first, again = (state_of(divided.folder / name) for name in ("copies", "again"))
    assert first.keys() == again.keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in first.items())


def test_one_process_that_steps_on_the_cpu_runs_under_torchrun(divided: Divided, tmp_path: Path) -> None:
    backend = open_backend(divided.model, TrainerConfig(**PLAIN, **ON_HOST), reference=divided.model)
    assert isinstance(backend, TorchrunLearner)
    for seed in range(2):
        backend.train(divided.samples, fresh_version=0, seed=seed)
    backend.save(tmp_path)
    backend.close()
    assert_same(divided.folder / "one", tmp_path)
