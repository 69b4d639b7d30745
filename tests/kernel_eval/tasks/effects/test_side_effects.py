"""What a call of a task's model changes, which is found out on copies."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

from weir.kernel_eval.tasks.effects.side_effects import SideEffects, changed_inputs, side_effects


def found(model: Any, *inputs: Any) -> SideEffects:
    """The side effects of a call, which leaves these inputs and this model as they are."""
    before = [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
    with torch.no_grad():
        effects = side_effects(model, list(inputs), contextlib.nullcontext())
    assert not changed_inputs(list(inputs), before)
    return effects._replace(fewest=0)


@pytest.mark.parametrize(
    ("function", "fewest"),
    [(lambda x: x + 1, 16), (lambda x: (x + 1, x.sum(-1)), 4), (lambda x: (x.sum(), x), 1), (lambda x: None, 0)],
)
def test_the_smallest_answer_is_known(function: Callable[..., Any], fewest: int) -> None:
    assert side_effects(Function(function), [torch.randn(4, 4)], contextlib.nullcontext()).fewest == fewest


class Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = function  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("function", "effects"),
    [
        (lambda x, y: x + y, SideEffects()),
        (lambda x, y: x.add_(y).sum(), SideEffects((0,))),
        (lambda x, y: x.add_(y), SideEffects((0,), frozenset([0]))),  # the caller has the values
        (lambda x, y: torch.nn.functional.relu(x, inplace=True) + y, SideEffects((0,), frozenset([0]))),
        (lambda x, y: torch.relu_(x).add_(y).sum(), SideEffects((0,))),
        (lambda x, y: y[:, :2].copy_(x[:, :2]).sum(), SideEffects((1,))),
    ],
)
def test_inputs_that_a_call_writes_to(function: Callable[..., Any], effects: SideEffects) -> None:
    assert found(Function(function), torch.randn(4, 4), torch.randn(4, 4)) == effects


def test_statistics_and_counts_of_a_model_by_name() -> None:
    norm = torch.nn.Sequential(torch.nn.BatchNorm1d(4))
    effects = found(norm, torch.randn(8, 4))
    assert set(effects.state) == {"0.running_mean", "0.running_var", "0.num_batches_tracked"}
    assert effects.keeps
    assert int(norm[0].num_batches_tracked) == 0
    assert found(norm.eval(), torch.randn(8, 4)) == SideEffects()


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


def test_what_is_no_tensor_counts_and_has_no_name() -> None:
    model = Counter()
    assert found(model, torch.randn(4)) == SideEffects(keeps=True)
    assert model.calls == 0


def test_a_model_that_cannot_be_copied_is_called_itself() -> None:
    model = Counter()
    model.lock = (part for part in ())  # type: ignore[assignment]
    assert found(model, torch.randn(4)) == SideEffects()
