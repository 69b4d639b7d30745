"""Which parameters get wide values, and that the reference and the candidate get the same."""

from __future__ import annotations

import torch

from weir.kernel_eval.ipc.messages import NamedPlace
from weir.kernel_eval.ipc.trace import Place, Storage, Trace
from weir.kernel_eval.judge.state.questions import Subject
from weir.kernel_eval.judge.state.wide_parameters import wide_subjects


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
