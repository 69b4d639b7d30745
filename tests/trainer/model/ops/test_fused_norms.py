"""Norms that are replaced give what the family's own code gives, and those that compute something else stay."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from weir.trainer.model.ops import fused_norms as module
from weir.trainer.model.ops.fused_norms import fuse_norms, rms_norm

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def norms(kind: type) -> torch.nn.ModuleList:
    made = torch.nn.ModuleList([kind(32), kind(16)])
    for norm in made:
        torch.nn.init.uniform_(norm.weight, 0.5, 1.5)  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize("kind", [LlamaRMSNorm, Qwen3RMSNorm])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_norm_and_its_gradient_are_those_of_the_family(kind: type, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    own = norms(kind)[0]
    states = torch.randn(5, 32).to(dtype)
    found = []
    for compute in (own, lambda states: rms_norm(own, states)):
        given = states.clone().requires_grad_()
        value = compute(given)
        found.append([value, *torch.autograd.grad(value.float().square().sum(), [given, own.weight])])
    rounding = 1e-5 if dtype is torch.float32 else 2e-2  # the family rounds before it multiplies
    for theirs, ours in zip(*found, strict=True):
        assert theirs.dtype == ours.dtype
        expected, given = theirs.detach().float(), ours.detach().float()
        assert float((expected - given).norm()) <= rounding * float(expected.norm())


def test_all_norms_of_a_family_are_replaced_and_stay_what_they_are_on_a_cpu() -> None:
    own = norms(Qwen3RMSNorm)
    replaced = copy.deepcopy(own)
    assert fuse_norms(replaced) == 2
    states = torch.randn(3, 32).bfloat16()
    assert torch.equal(replaced[0](states), own[0](states))
    assert replaced.state_dict().keys() == own.state_dict().keys()


def test_a_copy_of_a_replaced_norm_computes_with_its_own_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A critic begins as a copy of the policy, and then each has its own weights."""
    replaced = norms(Qwen3RMSNorm)
    fuse_norms(replaced)
    copied = copy.deepcopy(replaced)
    monkeypatch.setattr(module, "_is_on_gpu", lambda _: True)
    states = torch.randn(3, 32)
    before = replaced[0](states)
    torch.nn.init.zeros_(copied[0].weight)  # type: ignore[arg-type]
    assert not copied[0](states).any() and torch.equal(replaced[0](states), before)


def test_norms_are_tried_before_their_weights_are_loaded() -> None:
    with torch.device("meta"):
        empty = norms(LlamaRMSNorm)
    assert fuse_norms(empty) == 2


def test_norms_that_compute_something_else_stay() -> None:
    own = norms(GemmaRMSNorm)
    assert fuse_norms(own) == 0
    assert fuse_norms(torch.nn.LayerNorm(8)) == 0


@needs_gpu
def test_on_a_gpu_they_give_what_they_give_on_a_cpu() -> None:
    own = norms(Qwen3RMSNorm)
    states = torch.randn(3, 32)
    replaced = copy.deepcopy(own)
    fuse_norms(replaced)
    assert torch.allclose(replaced.cuda()[0](states.cuda()).cpu(), own[0](states), atol=1e-5)
