"""What a draw keeps of rows that hold each value twice, as the cosines of a rotary embedding do."""

from __future__ import annotations

import pytest
import torch

from weir.kernel_eval.tasks.draws.equal_values import in_form_of
from weir.kernel_eval.tasks.input_variants import Draw, Variant, plan
from weir.kernel_eval.tasks.reference import Reference

ANGLES = torch.outer(torch.arange(24.0), 10000.0 ** (-torch.arange(0, 32, 2) / 32))
TWICE = {"halves": torch.cat((ANGLES, ANGLES), -1).cos(), "pairs": ANGLES.repeat_interleave(2, -1).cos()}
TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, c):
        return x * c

def get_inputs():
    angles = torch.randn(24, 16)
    return [torch.randn(4, 24, 32), TWICE.cos()]
"""
OF_ANGLES = {"halves": "torch.cat((angles, angles), -1)", "pairs": "angles.repeat_interleave(2, -1)"}


def first_and_second(value: torch.Tensor, form: str) -> tuple[torch.Tensor, torch.Tensor]:
    middle = value.shape[-1] // 2
    return (value[..., :middle], value[..., middle:]) if form == "halves" else (value[..., ::2], value[..., 1::2])


@pytest.mark.parametrize("form", TWICE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_values_that_come_twice_do_so_in_what_replaces_them(form: str, dtype: torch.dtype) -> None:
    like = TWICE[form].to(dtype)
    changed = in_form_of(torch.randn(24, 32, dtype=dtype), like)
    assert (changed.shape, changed.dtype) == (like.shape, dtype)
    assert torch.equal(*first_and_second(changed, form))
    assert len(torch.unique(changed)) > 100


@pytest.mark.parametrize(
    "like",
    [
        torch.randn(24, 32),
        torch.ones(24, 32),  # others replace them
        (torch.arange(32) % 16 < 8).float().expand(24, 32),  # a mask
        torch.randn(24, 31),
        torch.tensor(1.0),
        torch.zeros(0, 4),
        torch.zeros(4, 0),
        torch.cat([torch.randn(24, 1)] * 2, -1) + torch.tensor([0.0, 1e-6]),
    ],
)
def test_other_tensors_are_replaced_by_any_values(like: torch.Tensor) -> None:
    value = torch.randn(like.shape)
    assert in_form_of(value, like) is value


@pytest.mark.parametrize(
    ("like", "is_in_order"),
    [
        (torch.tensor([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4]), True),
        (torch.tensor([0.1, 0.2, 0.4, 0.8, 1.6]), True),
        (torch.tensor([0.1, 0.2, 0.4, 0.8]), False),  # one draw of 24 is
        (torch.tensor([0.1, 0.2, 0.4]).expand(4, 3), True),
        (torch.tensor([0.2, 0.1, 0.4]).expand(4, 3), False),
        (torch.zeros(4, 3), False),
    ],
)
def test_few_values_are_in_order_by_no_chance(like: torch.Tensor, is_in_order: bool) -> None:
    value = torch.arange(like.shape[-1]).flip(0).float().expand(like.shape)
    assert torch.equal(in_form_of(value, like), value.flip(-1)) == is_in_order


@pytest.mark.parametrize("form", OF_ANGLES)
def test_each_draw_of_a_task_keeps_them(form: str) -> None:
    reference = Reference(TASK.replace("TWICE", OF_ANGLES[form]), 30.0)
    model = reference.build([], 1)
    draws = [draw for draw in Draw if draw is not Draw.FADED]  # which is for inputs of one form
    variants = [*plan(5, frozenset(), 3), *map(Variant, draws)]
    for seed, variant in enumerate(variants):
        (_, cosines), _, _ = reference.question(model, seed, variant)
        assert torch.equal(*first_and_second(cosines, form))
