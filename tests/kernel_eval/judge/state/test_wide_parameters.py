"""Which parameters get wide values, and that the reference and the candidate get the same."""

from __future__ import annotations

import torch

from weir.kernel_eval.ipc.messages import NamedPlace
from weir.kernel_eval.ipc.trace import Place, Storage, Trace
from weir.kernel_eval.judge.state.questions import Subject
from weir.kernel_eval.judge.state.wide_parameters import Kind, in_order_of, wide_calls, wide_subjects
from weir.kernel_eval.tasks.reference import Reference


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(4, 16) * 0.1)
        self.scale = torch.nn.Parameter(torch.ones(16))
        self.register_buffer("variance", torch.ones(16))


def subjects(read: set[int], *more: torch.Tensor) -> list[Subject]:
    """Of a candidate that holds weight, scale and variance, then `more`, and reads these pieces of its state."""
    model = Model().requires_grad_(False)
    named = {**dict(model.named_parameters()), "variance": model.variance}
    state = [tensor.detach().flatten().clone().view(torch.uint8) for tensor in (*named.values(), *more)]
    places = tuple(
        NamedPlace(name, Place(number, "float32", tuple(tensor.shape), tensor.stride(), 0))
        for number, (name, tensor) in enumerate(named.items())
    )
    trace = Trace(tuple(Storage("state", number, state[number].numel()) for number in sorted(read)), (), ())
    return list(wide_subjects(Subject(model, state, named=places), trace, ("scale", "variance"), 7))


def test_both_get_values_of_either_sign_then_only_above_zero() -> None:
    signed, positive_buffers, positive = subjects({0, 1, 2})
    for subject in (signed, positive_buffers, positive):
        assert torch.equal(subject.state[0].view(torch.float32).view(4, 16), subject.model.weight)
        assert torch.equal(subject.state[2].view(torch.float32), subject.model.variance)
        magnitudes = subject.model.variance.abs()
        assert float(magnitudes.min()) < 1e-5
        assert float(magnitudes.max()) > 2
    least = [
        [float(t.detach().min()) for t in (s.model.weight, s.model.scale, s.model.variance)] for s in (signed, positive)
    ]
    assert max(least[0]) < 0 < min(least[1])
    assert float(positive_buffers.model.variance.min()) > 0 > float(positive_buffers.model.scale.min())


def test_what_the_call_does_not_read_keeps_its_values() -> None:
    own = torch.ones(16)
    for subject in subjects({1}):
        assert torch.equal(subject.state[2].view(torch.float32), own)
        assert torch.equal(subject.model.variance, own)
        assert not torch.equal(subject.model.scale, own)
    assert subjects(set()) == []


def test_weights_keep_their_values_where_the_call_reads_what_may_be_made_of_them() -> None:
    for subject in subjects({0, 1, 3}, torch.randn(64)):
        assert 0 <= float(subject.model.weight.min()) <= float(subject.model.weight.max()) <= 0.1
        assert float(subject.model.scale.abs().max()) > 2


TASK = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Linear(16, 16)
        self.u = torch.nn.Linear(16, 16, bias=False)

    def forward(self, x, h):
        for t in range(STEPS):
            h = torch.tanh(self.w(x[:, t]) + self.u(h))
        return ANSWER

def get_inputs():
    return [torch.randn(8, 32, 16), torch.zeros(8, 16)]
"""


def calls(steps: int, answer: str) -> dict[Kind, tuple[Subject, list[torch.Tensor], torch.Tensor]]:
    """By kind, of a candidate that holds and reads all parameters of the task."""
    reference = Reference(TASK.replace("STEPS", str(steps)).replace("ANSWER", answer), 30.0)
    model = reference.build([], 1)
    named = dict(model.named_parameters())
    state = [tensor.detach().flatten().clone().view(torch.uint8) for tensor in named.values()]
    places = tuple(
        NamedPlace(name, Place(number, "float32", tuple(tensor.shape), tensor.stride(), 0))
        for number, (name, tensor) in enumerate(named.items())
    )
    trace = Trace(tuple(Storage("state", number, piece.numel()) for number, piece in enumerate(state)), (), ())
    own = Subject(model, state, named=places)
    found = [(s, q.inputs, q.expected.outputs[0]) for s, q in wide_calls(reference, own, trace, (), b"secret")]
    assert all(bool(inputs[1].any()) for _, inputs, _ in found)  # the first state, which is zeros in the task's draws
    for subject, _, _ in found:
        bias = subject.state[1].view(torch.float32)
        assert torch.equal(bias, subject.model.w.bias)
    kinds = [kind for kind in Kind if kind in _taken(steps, answer)]
    return dict(zip(kinds, found, strict=True))


def _taken(steps: int, answer: str) -> set[Kind]:
    extremes = {Kind.BELOW, Kind.ABOVE} if "amax" in answer or "topk" in answer else set()
    return {Kind.WIDE} | extremes | ({Kind.OPEN, Kind.HELD} if steps >= 8 else set())


def test_what_is_added_to_products_is_far_below_zero_and_far_above_it_where_the_largest_is_asked_for() -> None:
    found = calls(1, "self.w(h).amax(-1)")
    assert float(found[Kind.BELOW][2].max()) < -1
    assert float(found[Kind.ABOVE][2].min()) > 1
    assert set(found) == {Kind.WIDE, Kind.BELOW, Kind.ABOVE}


def test_so_it_is_where_the_largest_are_chosen() -> None:
    assert float(calls(1, "self.w(h).topk(2).values")[Kind.BELOW][2].max()) < -1


def test_gates_stay_open_and_a_state_keeps_its_sign_in_a_recurrence() -> None:
    found = calls(32, "h")
    bias = found[Kind.OPEN][0].model.w.bias.detach()
    assert float(bias.max()) > 2
    assert float(bias.min()) < -2
    subject, (x, h), answer = found[Kind.HELD]
    other = subject.model(x, -h).detach()
    held = (answer > 0.5) & (other < -0.5) | (answer < -0.5) & (other > 0.5)
    assert float(held.float().mean()) > 0.3
    assert set(found) == {Kind.WIDE, Kind.OPEN, Kind.HELD}


def test_bounds_of_buckets_stay_in_order() -> None:
    drawn = torch.randn(4, 16)
    bounds = torch.linspace(-2, 2, 16).repeat(4, 1)
    assert torch.equal(in_order_of(bounds, drawn), drawn.sort(-1).values)
    for own in (torch.ones(16), torch.randn(16).abs() - 1, torch.tensor([0.0, 1.0])):
        assert in_order_of(own, drawn) is drawn
