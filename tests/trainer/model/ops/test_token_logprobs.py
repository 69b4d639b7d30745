"""The head in blocks against the plain formula."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from weir.trainer.model.ops import token_logprobs as module
from weir.trainer.model.ops.token_logprobs import token_logprobs


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a GPU in half precision, but that torch computes the operations one by one."""
    monkeypatch.setattr(module, "is_fused", lambda _: True)
    monkeypatch.setattr(module, "FUSED_ROWS", module.ROWS)
    torch.compiler.set_stance("force_eager")
    yield
    torch.compiler.set_stance("default")


@pytest.mark.parametrize("entropy_coef", [0.0, 0.3])
@pytest.mark.parametrize("temperature", [None, 0.5])
@pytest.mark.usefixtures("fused")
def test_what_gpus_compute_is_the_same(entropy_coef: float, temperature: float | None) -> None:
    _compare(kept_bytes=0, entropy_coef=entropy_coef, temperature=temperature)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("entropy_coef", [0.0, 0.3])
def test_kernels_of_a_gpu_give_the_formula_in_half_precision(entropy_coef: float) -> None:
    random = torch.Generator("cuda").manual_seed(3)
    hidden = torch.randn(3000, 64, generator=random, device="cuda").bfloat16().requires_grad_()
    weight = torch.randn(5000, 64, generator=random, device="cuda").bfloat16().requires_grad_()
    targets = torch.randint(0, 5000, (3000,), generator=random, device="cuda")
    temperatures = 0.5 + torch.rand(3000, generator=random, device="cuda")
    found, wanted = [], []
    for measured, fused in ((found, True), (wanted, False)):
        logprobs, entropy = token_logprobs(hidden, weight, targets, temperatures, kept_bytes=0 if fused else 1 << 40)
        loss = (logprobs.exp() + entropy_coef * entropy).sum()
        measured += [logprobs, entropy, *torch.autograd.grad(loss, (hidden, weight))]
    for ours, theirs in zip(found, wanted, strict=True):
        assert (ours.float() - theirs.float()).norm() <= 1e-2 * theirs.float().norm()


@pytest.mark.parametrize("kept_bytes", [0, 1 << 30])
@pytest.mark.parametrize("entropy_coef", [0.0, 0.3])
def test_values_and_gradients_are_those_of_log_softmax(kept_bytes: int, entropy_coef: float) -> None:
    _compare(kept_bytes=kept_bytes, entropy_coef=entropy_coef, temperature=0.5)


def _compare(*, kept_bytes: int, entropy_coef: float, temperature: float | None) -> None:
    random = torch.Generator().manual_seed(3)
    count = module.ROWS + 37
    hidden = torch.randn(count, 16, generator=random).requires_grad_()
    weight = torch.randn(50, 16, generator=random).requires_grad_()
    targets = torch.randint(0, 50, (count,), generator=random)
    divisors = torch.ones(count) if temperature is None else temperature + torch.rand(count, generator=random)
    temperatures = None if temperature is None else divisors
    scale = torch.randn(count, generator=random)

    logprobs, entropy = token_logprobs(hidden, weight, targets, temperatures, kept_bytes=kept_bytes)
    found = torch.autograd.grad((scale * logprobs.exp() + entropy_coef * entropy).sum(), (hidden, weight))

    everything = torch.log_softmax(hidden @ weight.T / divisors[:, None], -1)
    plain, spread = everything.gather(1, targets[:, None])[:, 0], -(everything.exp() * everything).sum(-1)
    wanted = torch.autograd.grad((scale * plain.exp() + entropy_coef * spread).sum(), (hidden, weight))

    assert torch.allclose(logprobs, plain, atol=1e-5)
    assert torch.allclose(entropy, spread, atol=1e-5)
    for ours, theirs in zip(found, wanted, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5, rtol=1e-5)


def test_a_token_that_cannot_happen_has_no_entropy_and_no_gradient() -> None:
    weight = torch.tensor([[200.0], [0.0], [-200.0]])
    hidden = torch.ones(1, 1).requires_grad_()
    logprobs, entropy = token_logprobs(hidden, weight, torch.tensor([0]))
    (logprobs + entropy).sum().backward()
    assert (logprobs.item(), entropy.item()) == (0.0, 0.0)
    assert hidden.grad is not None and torch.isfinite(hidden.grad).all()
