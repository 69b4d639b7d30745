"""The clipped policy loss and its gradient, by hand on single tokens."""

from __future__ import annotations

import math

import pytest
import torch

from weir.trainer.losses.policy import PolicyTokens, clipped
from weir.trainer.losses.sequences import Sequences
from weir.trainer.settings.config import TrainerConfig


def tokens(logprobs: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor) -> PolicyTokens:
    """Tokens that are a sequence each."""
    return PolicyTokens(
        logprobs=logprobs, old_logprobs=old, advantages=advantages, sequences=Sequences.of([1] * len(logprobs))
    )


CONFIG = TrainerConfig()  # .2, .28, dual clip 3


def loss_and_gradient(ratio: float, advantage: float, config: TrainerConfig = CONFIG) -> tuple[float, float]:
    """The loss of one token and its derivative by the logprob."""
    logprob = torch.tensor([math.log(ratio) - 1.0], requires_grad=True, dtype=torch.float64)
    losses = clipped(tokens(logprob, torch.tensor([-1.0], dtype=torch.float64), torch.tensor([advantage])), config)
    losses.loss.sum().backward()  # type: ignore[no-untyped-call]
    assert logprob.grad is not None
    return losses.loss.item(), logprob.grad.item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.0, 2.0, -2.0, -2.0),  # ratio 1: the plain policy gradient -A
        (1.0, -2.0, 2.0, 2.0),
        (1.2, 2.0, -2.4, -2.4),  # inside both bounds: -rA
        (1.5, 2.0, -2.56, 0.0),  # clipped high at 1.28
        (0.5, -2.0, 1.6, 0.0),  # clipped low at 0.8
        (0.5, 2.0, -1.0, -1.0),  # below the lower bound with A > 0 the pessimistic side is -rA
        (1.5, -2.0, 3.0, 3.0),  # above the upper bound with A < 0 too
        (4.0, -2.0, 6.0, 0.0),  # dual clip: at most 3 |A|
        (1.0, 0.0, 0.0, 0.0),
    ],
)
def test_loss_and_gradient_by_hand(ratio: float, advantage: float, loss: float, gradient: float) -> None:
    assert loss_and_gradient(ratio, advantage) == pytest.approx((loss, gradient), abs=1e-9)


def test_without_dual_clip_a_negative_advantage_is_unbounded() -> None:
    assert loss_and_gradient(4.0, -2.0, TrainerConfig(dual_clip=None)) == pytest.approx((8.0, 8.0))


def test_the_log_ratio_is_clamped_at_twenty() -> None:
    losses = clipped(
        tokens(torch.tensor([50.0]), torch.tensor([0.0]), torch.tensor([-1.0])), TrainerConfig(dual_clip=None)
    )
    assert float(losses.loss) == pytest.approx(math.exp(20), rel=1e-6)


def test_clips_are_counted_only_where_they_take_the_gradient_away() -> None:
    logprobs = torch.log(torch.tensor([0.5, 0.5, 1.5, 1.5, 1.0]))
    losses = clipped(tokens(logprobs, torch.zeros(5), torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0])), CONFIG)
    assert losses.clipped_low.tolist() == [False, True, False, False, False]
    assert losses.clipped_high.tolist() == [False, False, True, False, False]
