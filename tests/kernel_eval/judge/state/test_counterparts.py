"""Which of a candidate's tensors stand for those of its task's model."""

from __future__ import annotations

import pytest
import torch

from weir.kernel_eval.ipc.messages import NamedPlace
from weir.kernel_eval.ipc.trace import Place
from weir.kernel_eval.judge.channel.faults import FaultDetected
from weir.kernel_eval.judge.state.counterparts import Counterpart, counterparts


def of_candidate(**tensors: torch.Tensor) -> tuple[list[torch.Tensor], list[NamedPlace]]:
    """A state that has each tensor in a piece of its own, and the names."""
    state, places = [], []
    for number, (name, tensor) in enumerate(tensors.items()):
        state.append(tensor.reshape(-1).view(torch.uint8).clone())
        dtype, shape = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
        places.append(NamedPlace(name.replace("__", "."), Place(number, dtype, shape, tuple(tensor.stride()), 0)))
    return state, places


def test_names_go_first_then_their_ends_then_values() -> None:
    model = torch.nn.ModuleDict({"one": torch.nn.BatchNorm1d(4), "two": torch.nn.BatchNorm1d(4)})
    zeros, count = torch.zeros(4), torch.tensor(0)
    state, places = of_candidate(two__running_mean=zeros, norm__running_mean=zeros, steps=count)
    names = {"one.running_mean", "two.running_mean", "two.num_batches_tracked"}
    assert counterparts(model, names, state, places) == {
        "one.running_mean": Counterpart(places[1].place, True),
        "two.running_mean": Counterpart(places[0].place, True),
        "two.num_batches_tracked": Counterpart(places[2].place, False),
    }


def test_other_values_and_places_outside_are_no_counterparts() -> None:
    model = torch.nn.BatchNorm1d(4)
    state, places = of_candidate(running_mean=torch.full((4,), 2.0), running_var=torch.ones(4))
    places[1] = NamedPlace("running_var", Place(1, "float32", (5,), (1,), 0))
    assert counterparts(model, {"running_mean", "running_var"}, state, places) == {}
    state, places = of_candidate(running_var=torch.ones(4))
    places[0] = NamedPlace("running_var", Place(0, "float32", (1,) * 70 + (4,), (4,) * 70 + (1,), 0))
    assert counterparts(model, {"running_var"}, state, places) == {}, "more dimensions than operators take"


def test_a_thousand_names_of_one_large_tensor_are_not_all_read() -> None:
    model = torch.nn.Linear(1024, 1024, bias=False)
    state = [model.weight.detach().clone().view(-1).view(torch.uint8)]

    def named(count: int) -> list[NamedPlace]:
        return [
            NamedPlace(f"w{i}", Place(0, "float32", (1,) * i + (1 << 20,), (1,) * (i + 1), 0)) for i in range(count)
        ]

    assert counterparts(model, ["weight"], state, named(16))["weight"].place == named(1)[0].place
    with pytest.raises(FaultDetected, match="more than 67108864 bytes") as caught:
        counterparts(model, ["weight"], state, named(17))
    assert caught.value.details["rule"] == "replay_differs"
