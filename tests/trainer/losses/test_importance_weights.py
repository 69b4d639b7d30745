"""Importance-weight corrections against plain loops over the tokens of two sequences."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from weir.trainer.losses.importance_weights import correct, interpolated, off_policy_sequences
from weir.trainer.losses.sequences import Sequences
from weir.trainer.settings.config import TrainerConfig

LENGTHS = (3, 2)
RECORDED = [-1.0, -2.0, -0.5, -1.5, -0.1]
RECOMPUTED = [-0.9, -3.4, -0.4, -0.1, -0.2]
RATIOS = [math.exp(new - old) for new, old in zip(RECOMPUTED, RECORDED, strict=True)]


def weights(**settings: Any) -> list[float]:
    config = TrainerConfig(old_logprobs="recomputed", **settings)
    return correct(torch.tensor(RECOMPUTED), torch.tensor(RECORDED), Sequences.of(LENGTHS), config).weights.tolist()


def by_sequence(level: str) -> list[float]:
    """Each token's sequence's product of ratios, or its geometric mean."""
    found, start = [], 0
    for length in LENGTHS:
        product = math.prod(RATIOS[start : start + length])
        found += [product if level == "sequence" else product ** (1 / length)] * length
        start += length
    return found


def test_decoupled_zeroes_what_is_above_the_bound_and_keeps_what_is_below() -> None:
    expected = [w if w <= 2 else 0.0 for w in RATIOS]
    assert weights(correction="decoupled", correction_high=2.0) == pytest.approx(expected)


@pytest.mark.parametrize("level", ["sequence", "geometric"])
@pytest.mark.parametrize("mode", ["truncate", "clip", "mask"])
def test_mis_at_levels_of_sequences(level: str, mode: str) -> None:
    low, high = 0.9, 1.2
    bounded = {
        "truncate": lambda w: min(w, high),
        "clip": lambda w: min(max(w, low), high),
        "mask": lambda w: w if low <= w <= high else 0.0,
    }[mode]
    bounds = {"correction_high": high} if mode == "truncate" else {"correction_low": low, "correction_high": high}
    found = weights(correction="mis", correction_level=level, correction_mode=mode, **bounds)
    assert found == pytest.approx([bounded(w) for w in by_sequence(level)])


def test_a_token_below_the_veto_takes_its_sequence_with_it() -> None:
    found = weights(correction="mis", correction_mode="truncate", correction_high=10.0, correction_veto=0.3)
    assert found == pytest.approx([0.0, 0.0, 0.0, RATIOS[3], RATIOS[4]])  # exp(-1.4) is below 0.3


def test_sequences_with_a_negative_advantage_that_drifted_are_left_out() -> None:
    advantages = torch.tensor([-1.0, -1.0, 2.0, -1.0, -1.0])
    found = off_policy_sequences(
        torch.tensor(RECOMPUTED), torch.tensor(RECORDED), advantages, Sequences.of(LENGTHS), delta=0.3
    )
    assert found.tolist() == [True, True, False, False, False]  # means 0.4 and -0.65


def test_the_interpolated_policy_is_the_trained_one_for_fresh_tokens_and_the_engines_after_one_version() -> None:
    logprobs = torch.tensor([-1.0, -1.0, -1.0], requires_grad=True)
    found = interpolated(logprobs, torch.tensor([-2.0, -2.0, -2.0]), torch.tensor([0, 1, 4]))
    assert found.tolist() == pytest.approx([-1.0, -2.0, -1.25])
    assert not found.requires_grad
