"""Calls beside the trials: small values in parameters and inputs, or in matrices, where a task adds small numbers."""

from __future__ import annotations

import torch

from weir.kernel_eval.ipc.messages import NamedPlace
from weir.kernel_eval.ipc.trace import Place, Storage, Trace
from weir.kernel_eval.judge.state.further_calls import further_calls
from weir.kernel_eval.judge.state.questions import Question, Subject
from weir.kernel_eval.tasks.reference import Reference

TASK = """
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(32, 64)
        self.scale = torch.nn.Parameter(torch.ones(64))
        self.shift = torch.nn.Parameter(torch.zeros(64))
        self.register_buffer("variance", torch.ones(64))

    def forward(self, x):
        y = self.linear(x) * self.scale + self.shift
        return FUNCTION

def get_inputs():
    return [torch.randn(16, 32)]
"""
NORM = "y / (y.norm(dim=-1, keepdim=True) + EPS)"
CONSTANT = ("scale", "shift", "variance")


def calls(
    function: str, eps: float, *relaxed: str, constant: tuple[str, ...] = CONSTANT
) -> tuple[Subject, dict[str, tuple[Subject, Question]]]:
    """The task's model, with a candidate that holds the same, and the calls beside the trials by name."""
    reference = Reference(TASK.replace("FUNCTION", function).replace("EPS", str(eps)), 30.0)
    model = reference.build([], 1).requires_grad_(False)
    named = {**dict(model.named_parameters()), "variance": model.variance}
    state = [tensor.detach().flatten().clone().view(torch.uint8) for tensor in named.values()]
    places = tuple(
        NamedPlace(name, Place(number, "float32", tuple(tensor.shape), tensor.stride(), 0))
        for number, (name, tensor) in enumerate(named.items())
    )
    trace = Trace(tuple(Storage("state", number, piece.numel()) for number, piece in enumerate(state)), (), ())
    own = Subject(model, state, named=places)
    found = further_calls(reference, own, trace, constant, b"secret", relaxed)
    return own, {name: (subject, question) for name, subject, question in found}  # of each kind the last


def test_vectors_are_small_together_with_inputs_and_matrices_stay() -> None:
    own, made = calls(NORM, 1e-5)
    subject, question = made["small_values"]
    assert torch.equal(subject.model.linear.weight, own.model.linear.weight)
    for small in (*question.inputs, subject.model.linear.bias, subject.model.shift, subject.model.variance):
        assert 0 < float(small.abs().max()) < 0.05
    assert float(subject.model.variance.min()) > 0
    assert 0.5 <= float(subject.model.scale.min()) <= float(subject.model.scale.max()) <= 1.5
    names = [place.name for place in own.named]
    for name, tensor in {**dict(subject.model.named_parameters()), "variance": subject.model.variance}.items():
        assert torch.equal(subject.state[names.index(name)].view(torch.float32), tensor.flatten())


def test_random_values_that_are_the_same_for_every_seed_are_small_too() -> None:
    _, made = calls(NORM, 1e-5, constant=(*CONSTANT, "linear.bias"))
    assert 0 < float(made["small_values"][0].model.linear.bias.abs().max()) < 0.05


def test_what_is_added_counts_there() -> None:
    _, question = calls(NORM, 1e-5)[1]["small_values"]
    assert float(question.expected.outputs[0].norm(dim=-1).min()) < 0.99


def test_a_task_that_adds_no_small_number_has_no_such_call() -> None:
    assert list(calls("y + EPS", 0.5)[1]) == ["wide_parameters"]


def test_what_a_task_relaxes_is_not_asked() -> None:
    assert list(calls(NORM, 1e-5, "varied_inputs")[1]) == ["wide_parameters"]
    own, made = calls(NORM, 1e-5, "varied_parameters")
    assert list(made) == ["small_values"]
    assert made["small_values"][0] is own


OF_WEIGHTS = "y + x @ (self.linear.weight / (self.linear.weight.norm(dim=-1, keepdim=True) + EPS)).mT"


def test_matrices_are_small_beside_usual_inputs_where_a_number_is_added_to_what_is_made_of_them() -> None:
    own, made = calls(OF_WEIGHTS, 1e-5)
    subject, question = made["small_weights"]
    assert float(subject.model.linear.weight.abs().max()) < 1e-5
    assert torch.equal(subject.model.linear.bias, own.model.linear.bias)
    assert float(question.inputs[0].abs().max()) > 1
    assert "small_weights" not in calls(NORM, 1e-5)[1]
    assert "small_weights" not in calls(OF_WEIGHTS, 1e-5, "varied_parameters")[1]
