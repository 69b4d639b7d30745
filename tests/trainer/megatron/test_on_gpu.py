"""What Megatron-core's backend computes on a GPU, where it computes with other kernels, against the torch backend."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support_gradients import drifted_samples
from support_megatron_models import make_moe
from support_model import make_tiny_model

from weir.trainer.backend import open_backend
from weir.trainer.learner.learner import Learner
from weir.trainer.learner.saved_state import saved_state
from weir.trainer.settings.config import TrainerConfig

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
LR = 1e-3

# Settings of [trainer.megatron], and how far the gradient may lie from that in float32: on CPUs bfloat16 is 4 % off.
SETTINGS: list[tuple[dict[str, Any], float]] = [
    ({}, 0.08),
    ({"optimizer_offload_fraction": 0.5}, 0.08),
    ({"fused_activations": True}, 0.08),
    ({"fp8": "tensorwise"}, 0.4),
]


def of_state(folder: Path, kind: str) -> dict[str, torch.Tensor]:
    """One kind of the numbers in a version's state, by parameter."""
    saved = saved_state(folder)
    assert saved is not None
    prefix = f"policy/{kind}/network."
    return {name.removeprefix(prefix): saved.rows(name, 0, 2**62) for name in saved if name.startswith(prefix)}


@pytest.mark.parametrize("model", ["dense", "experts"])
@pytest.mark.parametrize(("settings", "tolerance"), SETTINGS, ids=["plain", "offload", "activations", "fp8"])
def test_a_step_in_bfloat16_on_a_gpu_has_the_gradient_of_the_torch_backend_and_moves_by_it(
    tmp_path: Path, model: str, settings: dict[str, Any], tolerance: float
) -> None:
    if "fp8" in settings and (find_spec("transformer_engine") is None or torch.cuda.get_device_capability() < (8, 9)):
        pytest.skip("needs Transformer Engine, and a GPU that computes in FP8")
    folder = make_moe(tmp_path / "model") if model == "experts" else make_tiny_model(tmp_path / "model", vocab_size=517)
    more: dict[str, Any] = {"device": "cuda", "algorithm": "grpo", "lr": LR, "weight_decay": 0.0}
    samples = drifted_samples(folder, TrainerConfig(device="cpu"), 1)[:6]
    exact = Learner(folder, TrainerConfig(precision="float32", **more))
    divided = open_backend(
        folder, TrainerConfig(backend="megatron", precision="bfloat16", megatron=settings, **more), reference=folder
    )
    folders = [tmp_path / "exact", tmp_path / "divided"]
    for learner, made in zip((exact, divided), folders, strict=True):
        learner.train(samples, fresh_version=2, seed=0)
        made.mkdir()
        learner.save(made)
    divided.close()
    expected, found = (of_state(made, "exp_avg") for made in folders)
    whole = torch.cat([tensor.float().flatten() for tensor in expected.values()])
    own = torch.cat([found[name].float().flatten() for name in expected])
    assert float((own - whole).norm()) <= tolerance * float(whole.norm())
    first, squares, stepped = (
        load_file(folder / "model.safetensors"),
        *(of_state(folders[1], kind) for kind in ("exp_avg_sq", "weights")),
    )
    same = [name for name in stepped if name in first]
    assert len(same) > 10, "all but experts, which lie in one tensor in the state"
    beta1, beta2 = TrainerConfig().betas
    for name in same:
        mean, square = found[name] / (1 - beta1), squares[name] / (1 - beta2)
        moved = stepped[name] - first[name]
        assert torch.allclose(moved, -LR * mean / (square.sqrt() + 1e-8), rtol=1e-3, atol=1e-3 * LR), name
