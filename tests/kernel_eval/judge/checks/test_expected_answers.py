"""Few elements that a rounding decides are right on either side; many are not, nor is what no rounding gives."""

from __future__ import annotations

from collections.abc import Callable

import torch

from weir.kernel_eval.judge.checks.expected_answers import difference
from weir.kernel_eval.tasks.reference import Reference

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        scale = x.abs().amax(-1, keepdim=True) / 127.0
        return ANSWER

def get_inputs():
    return [torch.randn(256, 1024)]
"""
WHOLE = "torch.round(x / scale).to(torch.int8)"
SCALED = "torch.round(x / scale) * scale"


def is_wrong(answer: str, change: object) -> bool:
    """Whether an answer is wrong in which some elements, right ones, were changed."""
    reference = Reference(TASK.replace("ANSWER", answer), 30.0)
    model = reference.build([], 1)
    inputs = reference.inputs(2)
    expected = reference.expected(model, inputs)
    scale = inputs[0].abs().amax(-1, keepdim=True) / 127.0
    changed = change(expected.outputs[0].clone(), inputs[0], scale)  # type: ignore[operator]
    assert not torch.equal(changed, expected.outputs[0])
    return difference(reference, model, inputs, expected, [changed]) is not None


def near_halves(x: torch.Tensor, scale: torch.Tensor, count: int) -> torch.Tensor:
    """The flat places of the values that are nearest to a half."""
    exact = x.double() / scale.double()
    return ((exact - exact.floor()) - 0.5).abs().flatten().argsort()[:count]


def by_the_inverse(out: torch.Tensor, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    whole = torch.round(x * (1.0 / scale))
    made = whole * scale if out.is_floating_point() else whole.to(out.dtype)
    at = near_halves(x, scale, 4)  # where a division and a product with the inverse may differ
    changed = out.clone()
    changed.view(-1)[at] = made.view(-1)[at]
    exact = x.double() / scale.double()
    other = torch.where(torch.round(exact) > exact, exact.floor(), exact.ceil())
    other = other * scale if out.is_floating_point() else other
    changed.view(-1)[at[0]] = other.view(-1)[at[0]].to(out.dtype)
    return changed


def test_what_lies_at_a_half_may_be_rounded_either_way() -> None:
    assert not is_wrong(WHOLE, by_the_inverse)
    assert not is_wrong(SCALED, by_the_inverse)


def test_one_element_that_no_rounding_gives_is_wrong() -> None:
    def elsewhere(out: torch.Tensor, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        exact = x / scale
        at = ((exact - exact.round()).abs() < 0.1).flatten().nonzero()[0, 0]
        out.view(-1)[at] += 1 if not out.is_floating_point() else scale.view(-1)[at // x.shape[1]]
        return out

    def by_two(out: torch.Tensor, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        out.view(-1)[near_halves(x, scale, 1)] += 2
        return out

    assert is_wrong(WHOLE, elsewhere)
    assert is_wrong(SCALED, elsewhere)
    assert is_wrong(WHOLE, by_two)


def test_many_are_wrong_whatever_they_are() -> None:
    def many(out: torch.Tensor, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        out.view(-1)[near_halves(x, scale, 400)] += 1
        return out

    assert is_wrong(WHOLE, many)


def test_nothing_finite_is_near_an_infinity() -> None:
    def shown(out: torch.Tensor, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.isinf(out), x, out)

    def hidden(out: torch.Tensor, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        out[0, 0] = torch.inf
        return out

    assert is_wrong('x.masked_fill(torch.arange(1024) > 500, float("-inf"))', shown)
    assert is_wrong("x.masked_fill(torch.arange(1024) == 1023, float('-inf'))", shown)
    assert is_wrong(SCALED, hidden)


RANKS = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        logp = x.log_softmax(-1)
        return (logp > logp[:, :1]).sum(-1)

def get_inputs():
    x = torch.randn(64, 1000) * 1e-3
    x[:, 500] = 250.0
    x[16:] = torch.randn(48, 1000)
    return [x]
"""
ANGLES = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, at):
        inverse = torch.pow(10000.0, -torch.arange(32, dtype=torch.float32) / 32)
        return x * (at.float()[:, None] * inverse).cos()

def get_inputs():
    return [torch.randn(256, 32), torch.randint(0, 8192, (256,))]
"""


def verdicts(task: str, change: Callable[..., torch.Tensor], num_draws: int = 20) -> set[bool]:
    """Whether some of the answers that an own formula gives are wrong, and some right."""
    reference = Reference(task, 30.0)
    model = reference.build([], 1)
    found = set[bool]()
    for seed in range(num_draws):
        inputs = reference.inputs(seed)
        expected = reference.expected(model, inputs)
        found.add(difference(reference, model, inputs, expected, [change(*inputs)]) is not None)
    return found


def test_a_rank_among_scores_that_rounding_makes_equal_is_any_of_several() -> None:
    assert verdicts(RANKS, lambda x: (x > x[:, :1]).sum(-1)) == {False}
    assert verdicts(RANKS, lambda x: (x > x[:, :1]).sum(-1).clamp(max=800)) == {True}  # of all rows
    assert verdicts(RANKS, lambda x: (x > x[:, :1]).sum(-1) * (x[:, 500] < 200)) == {True}  # one side of all


def test_frequencies_that_are_off_by_a_rounding_give_angles_that_are_right() -> None:
    def off(x: torch.Tensor, at: torch.Tensor, by: float = 1.0) -> torch.Tensor:
        inverse = torch.pow(10000.0, -torch.arange(32, dtype=torch.float32) / 32)
        signs = (1 - 2 * torch.randint(0, 2, (32,))) * (inverse < 1)  # of one there is none
        inverse = inverse * (1 + by * torch.finfo(torch.float32).eps * signs)
        return x * (at.float()[:, None] * inverse).cos()

    assert verdicts(ANGLES, off) == {False}
    assert verdicts(ANGLES, lambda x, at: off(x, at, 100.0)) == {True}


SMALL = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return FUNCTION

def get_inputs():
    return [torch.randn(64, 128) * 1e-6]
"""


def test_a_tangent_and_a_softplus_may_be_made_of_numbers_near_one() -> None:
    tangent = SMALL.replace("FUNCTION", "15 * torch.tanh(x / 15)")
    assert verdicts(tangent, lambda x: 15 * (2 * torch.sigmoid(2 * x / 15) - 1)) == {False}
    assert verdicts(tangent, lambda x: x + 1e-4) == {True}
    softplus = SMALL.replace("FUNCTION", "torch.nn.functional.softplus(x * 1e6 - 12)")
    assert verdicts(softplus, lambda x: torch.log(1 + torch.exp(x * 1e6 - 12))) == {False}
    other = SMALL.replace("FUNCTION", "2 * torch.sigmoid(x) - 1")  # the task passes through one itself
    assert verdicts(other, lambda x: torch.tanh(x / 2)) == {False}
    for scale, is_told in ((1.0, False), (1e4, True)):  # zeros are excused, but nothing tells them from an answer
        reference = Reference(tangent, 30.0)
        model, told = reference.build([], 1), set[int]()
        inputs = [reference.inputs(1)[0] * scale]
        expected = reference.expected(model, inputs)
        got = 15 * (2 * torch.sigmoid(2 * inputs[0] / 15) - 1) if is_told else torch.zeros_like(inputs[0])
        assert difference(reference, model, inputs, expected, [got], told) is None
        assert (told == {0}) == is_told
    elu = SMALL.replace("FUNCTION", "torch.nn.functional.elu(x)")
    assert verdicts(elu, lambda x: torch.where(x > 0, x, torch.exp(x) - 1)) == {False}
    straight = SMALL.replace("FUNCTION", "torch.sin(x)")
    assert verdicts(straight, lambda x: (x + 1) - 1) == {True}


EXPERTS = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1).topk(4).indices

def get_inputs():
    return [torch.randn(256, 16) * 20]
"""


def chosen(x: torch.Tensor) -> torch.Tensor:
    return torch.sort(torch.softmax(x, -1), dim=-1, stable=True, descending=True).indices[:, :4]


def test_of_scores_that_underflow_the_first_may_be_taken_but_not_any_other() -> None:
    assert verdicts(EXPERTS, chosen, num_draws=2) == {False}
    assert verdicts(EXPERTS, lambda x: chosen(x).where(torch.arange(4) < 3, 0), num_draws=2) == {True}


def test_draws_on_which_many_scores_underflow_are_not_asked() -> None:
    reference = Reference(EXPERTS.replace("* 20", ""), 30.0)
    model = reference.build([], 1)
    inputs = [torch.randn(256, 16, generator=torch.Generator().manual_seed(1))]
    for scale, is_asked in ((1.0, True), (300.0, False)):
        given = [inputs[0] * scale]
        assert reference.is_comparable(model, given, reference.expected(model, given)) is is_asked
