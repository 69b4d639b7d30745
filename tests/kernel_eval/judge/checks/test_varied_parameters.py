from __future__ import annotations

from typing import Any

import pytest
import torch

from weir.kernel_eval.ipc.messages import NamedPlace
from weir.kernel_eval.ipc.trace import Place
from weir.kernel_eval.judge.checks.varied_parameters import VariedParameters


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)
        self.norm = torch.nn.LayerNorm(6)
        self.shift = torch.nn.Parameter(torch.zeros(6))


def held(**tensors: torch.Tensor) -> tuple[list[torch.Tensor], list[NamedPlace]]:
    """A candidate's state: each tensor in a storage of its own."""
    state = [tensor.contiguous().reshape(-1).view(torch.uint8).clone() for tensor in tensors.values()]
    places = [
        NamedPlace(name.replace("__", "."), Place(i, str(t.dtype).removeprefix("torch."), t.shape, t.stride(), 0))
        for i, (name, t) in enumerate(tensors.items())
    ]
    return state, places


def test_ones_and_zeros_get_values_and_all_other_parameters_stay() -> None:
    model = Model()
    varied = VariedParameters(model, 1)
    assert varied.names == ["shift", "norm.weight", "norm.bias"]
    assert varied.model.linear.weight is model.linear.weight
    for name, least, most in (("weight", 0.5, 1.5), ("bias", -4.0, 4.0)):
        values = getattr(varied.model.norm, name)
        assert len(values.unique()) == 6
        assert bool(((values >= least) & (values <= most)).all())
    assert torch.equal(model.norm.weight, torch.ones(6))
    assert VariedParameters(model.linear, 1).model is model.linear


def test_far_values_have_either_sign_and_booleans_are_flipped_in_both() -> None:
    model = Model()
    model.register_buffer("keep", torch.ones(256, dtype=torch.bool))
    far = VariedParameters(model, 1, far=True).model
    weight = far.norm.weight.detach()
    assert float(weight.min()) < 0 and float(weight.abs().max()) > 4
    varied = VariedParameters(model, 1)
    state, places = held(keep=torch.ones(256, dtype=torch.bool))
    changed, _ = varied.in_state(state, places)
    assert torch.equal(changed[0].view(torch.bool), varied.model.keep)
    assert 0 < int((~varied.model.keep).sum()) < 128


def test_the_same_values_are_put_where_a_candidate_has_the_names_or_else_the_sizes() -> None:
    varied = VariedParameters(Model(), 1)
    ones, zeros = torch.ones(6), torch.zeros(6)
    state, places = held(beta=zeros.view(2, 3), norm__bias=zeros, gamma=ones.half(), table=torch.rand(6), ones=ones)
    changed, lacking = varied.in_state(state, places)
    assert lacking == []
    model = varied.model
    assert torch.equal(changed[0].view(torch.float32), model.shift)  # by size, since the name's owner is taken
    assert torch.equal(changed[1].view(torch.float32), model.norm.bias)
    assert torch.equal(changed[2].view(torch.float16), model.norm.weight.half())
    assert torch.equal(changed[3], state[3])
    assert torch.equal(changed[4], state[4])  # there are more ones than the task has


def test_buffers_that_a_checkpoint_would_load_get_values_and_variances_stay_positive() -> None:
    model = torch.nn.BatchNorm1d(64)
    model.register_buffer("table", torch.zeros(8), persistent=False)
    model.register_buffer("expanded", torch.ones(1).expand(8))
    varied = VariedParameters(model, 1)
    assert varied.names == ["weight", "bias", "running_mean", "running_var"]
    assert 0.5 <= float(varied.model.running_var.min()) < 0.7
    assert 1.3 < float(varied.model.running_var.max()) <= 1.5
    assert bool((varied.model.running_mean != 0).all())
    assert (int(model.running_mean.count_nonzero()), int(model.num_batches_tracked)) == (0, 0)


def test_names_that_end_alike_go_before_the_order() -> None:
    zeros = torch.zeros(6)
    state, places = held(running_mean=zeros, bias=zeros)
    varied = VariedParameters(torch.nn.Sequential(torch.nn.BatchNorm1d(6)), 1)
    changed, lacking = varied.in_state(state, places)
    assert lacking == ["0.weight", "0.running_var"]
    assert torch.equal(changed[0].view(torch.float32), varied.model[0].running_mean)
    assert torch.equal(changed[1].view(torch.float32), varied.model[0].bias)


def test_parameters_that_start_the_same_each_time_are_scaled_and_found_by_what_they_hold() -> None:
    model = torch.nn.Sequential(torch.nn.PReLU(), torch.nn.Linear(4, 4))
    varied = VariedParameters(model, 1, {"0.weight"})
    assert varied.names == ["0.weight"]
    scaled = float(varied.model[0].weight.detach())
    assert 0.125 <= scaled < 0.375
    assert scaled != 0.25
    slope = torch.full((1,), 0.25)
    changed, lacking = varied.in_state(*held(other=torch.rand(1), slope=slope))
    assert lacking == []
    assert torch.equal(changed[1].view(torch.float32), varied.model[0].weight)


def test_a_candidate_without_such_parameters_lacks_them() -> None:
    assert VariedParameters(Model(), 1).in_state([], []) == ([], ["shift", "norm.weight", "norm.bias"])


FORGED: dict[str, Any] = {
    "beyond its storage": Place(0, "float32", (6,), (1,), 1),
    "before its storage": Place(0, "float32", (6,), (1,), -1),
    "in no storage": Place(7, "float32", (6,), (1,), 0),
    "one element many times": Place(0, "float32", (6,), (0,), 0),
    "elements that overlap": Place(0, "float32", (2, 3), (1, 1), 0),
    "a negative stride": Place(0, "float32", (6,), (-1,), 5),
    "huge": Place(0, "float32", (2**62, 2**62), (1, 1), 0),
    "of no dtype": Place(0, "Tensor", (6,), (1,), 0),
    "without a stride": Place(0, "float32", (6,), (), 0),
}


@pytest.mark.parametrize("place", FORGED.values(), ids=FORGED)
def test_a_place_that_no_tensor_has_is_passed_over(place: Place) -> None:
    state = [torch.ones(6).view(torch.uint8)]
    changed, lacking = VariedParameters(torch.nn.LayerNorm(6), 1).in_state(state, [NamedPlace("weight", place)])
    assert lacking == ["weight", "bias"]
    assert torch.equal(changed[0], state[0])


TASK = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(64)
    def forward(self, x):
        return self.norm(x)
def get_inputs():
    return [torch.rand(32, 64)]
"""
CANDIDATE = """
import torch, triton, triton.language as tl
@triton.jit
def normalize(x_ptr, scale_ptr, shift_ptr, out_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + tl.program_id(0) * SIZE + at)
    centred = x - tl.sum(x, 0) / SIZE
    y = centred * tl.rsqrt(tl.sum(centred * centred, 0) / SIZE + 1e-5)
    tl.store(out_ptr + tl.program_id(0) * SIZE + at, y * tl.load(scale_ptr + at) + tl.load(shift_ptr + at))
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        HELD
    def forward(self, x):
        out = torch.empty_like(x)
        normalize[(x.shape[0],)](x, SCALE, SHIFT, out, SIZE=64)
        return out
"""
HONEST = {
    "the same layer": ("self.norm = torch.nn.LayerNorm(64)", "self.norm.weight", "self.norm.bias"),
    "parameters of its own": (
        "self.b, self.g = (torch.nn.Parameter(make(64)) for make in (torch.zeros, torch.ones))", "self.g", "self.b"
    ),
    "plain tensors": (
        "self.b, self.g = (make(64, device='cuda') for make in (torch.zeros, torch.ones))", "self.g", "self.b"
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", HONEST)
def test_a_candidate_that_uses_its_parameters_is_right_however_it_holds_them(server: Any, how: str) -> None:
    held_as, scale, shift = HONEST[how]
    candidate = CANDIDATE.replace("HELD", held_as).replace("SCALE", scale).replace("SHIFT", shift)
    reply = server.evaluate(candidate, TASK)
    assert reply["correct"], reply
    assert reply["details"]["varied_parameters"] == ["norm.weight", "norm.bias"]


def test_a_candidate_without_them_is_wrong_and_the_message_says_what_it_needs(server: Any) -> None:
    constants = ("torch.ones(64, device=x.device)", "torch.zeros(64, device=x.device)")
    candidate = CANDIDATE.replace("HELD", "pass").replace("SCALE", constants[0]).replace("SHIFT", constants[1])
    reply = server.evaluate(candidate, TASK)
    assert reply["fault"] == "output_mismatch"
    assert "norm.weight, norm.bias" in reply["fault_message"]
    assert server.evaluate(candidate, TASK, relax_rules=["varied_parameters"])["correct"]


def test_a_task_that_refuses_other_values_keeps_its_own(server: Any) -> None:
    task = TASK.replace("return self.norm(x)", "assert (self.norm.weight == 1).all(); return self.norm(x)")
    candidate = CANDIDATE.replace("HELD", "self.norm = torch.nn.LayerNorm(64)")
    candidate = candidate.replace("SCALE", "self.norm.weight").replace("SHIFT", "self.norm.bias")
    assert server.evaluate(candidate, task)["correct"]
