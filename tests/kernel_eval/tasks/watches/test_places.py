"""Integers that are the places which a task computes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from weir.kernel_eval.tasks.input_variants import Draw, Variant
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.tasks.watches.places import with_places

RIGHT: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "the largest": lambda x, n: x.argmax(-1) == n,
    "one of the largest": lambda x, n: (x.topk(3).indices == n[:, None]).any(-1),
    "beside another": lambda x, n: n != x.argmin(-1).int(),
}


@pytest.mark.parametrize("kind", RIGHT)
def test_some_integers_become_what_they_are_compared_with(kind: str) -> None:
    torch.manual_seed(1)
    given = [torch.randn(64, 1000), torch.randint(0, 1000, (64,))]
    before = given[1].clone()
    x, n = with_places(lambda inputs: RIGHT[kind](*inputs), [1], given)
    share = float(RIGHT[kind](x, n).double().mean())
    assert 0.2 < share < 0.9
    assert torch.equal(x, given[0])
    assert torch.equal(given[1], before)


def test_integers_that_may_not_change_stay_as_does_what_the_task_changes() -> None:
    given = [torch.randn(8, 10), torch.randint(0, 10, (8,))]

    def call(inputs: list[torch.Tensor]) -> torch.Tensor:
        inputs[0].zero_()
        return inputs[0].argmax(-1) == inputs[1]

    assert all(map(torch.equal, with_places(call, [], given), given))


def test_labels_are_right_in_a_call_of_their_own() -> None:
    source = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, label):
        return (x.argmax(-1) == label).float()
def get_inputs():
    return [torch.randn(64, 5000), torch.randint(0, 5000, (64,))]
"""
    reference = Reference(source, 30.0)
    _, expected, drawn = reference.question(reference.build([], 1), 3, Variant(Draw.MATCHED))
    assert drawn.draw is Draw.MATCHED
    assert 0.2 < float(expected.outputs[0].mean()) < 0.9
