"""The head in blocks against the plain formula."""

from __future__ import annotations

import pytest
import torch

from weir.trainer.model.ops import token_logprobs as module
from weir.trainer.model.ops.token_logprobs import token_logprobs


@pytest.mark.parametrize("kept_bytes", [0, 1 << 30])
@pytest.mark.parametrize("entropy_coef", [0.0, 0.3])
def test_values_and_gradients_are_those_of_log_softmax(kept_bytes: int, entropy_coef: float) -> None:
    random = torch.Generator().manual_seed(3)
    count = module.ROWS + 37
    hidden = torch.randn(count, 16, generator=random).requires_grad_()
    weight = torch.randn(50, 16, generator=random).requires_grad_()
    targets = torch.randint(0, 50, (count,), generator=random)
    temperatures = 0.5 + torch.rand(count, generator=random)
    scale = torch.randn(count, generator=random)

    logprobs, entropy = token_logprobs(hidden, weight, targets, temperatures, kept_bytes=kept_bytes)
    found = torch.autograd.grad((scale * logprobs.exp() + entropy_coef * entropy).sum(), (hidden, weight))

    everything = torch.log_softmax(hidden @ weight.T / temperatures[:, None], -1)
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
