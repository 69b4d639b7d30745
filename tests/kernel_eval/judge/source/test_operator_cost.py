"""The FLOPs of operators against torch's own counter, the bytes against those of the tensors, and shares of work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from weir.kernel_eval.ipc.trace import Operator, Place
from weir.kernel_eval.judge.checks.reference_operators import hybrid_details
from weir.kernel_eval.judge.source.operator_cost import (
    Cost,
    Size,
    cost_of,
    cost_of_steps,
    kernel_share,
    share_of_kernels,
)

X, WEIGHTS = torch.randn(2, 6, 9, 7), torch.randn(8, 3, 3, 3)
ACROSS = torch.randn(6, 4, 3, 3)  # of a transposed convolution: channels in, channels out in each group
Q, K, V = torch.randn(2, 3, 10, 8), torch.randn(2, 3, 12, 8), torch.randn(2, 3, 12, 8)
CALLS: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "mm": (torch.mm, [torch.randn(4, 5), torch.randn(5, 7)]),
    "bmm": (torch.bmm, [torch.randn(3, 4, 5), torch.randn(3, 5, 7)]),
    "addmm": (torch.addmm, [torch.randn(7), torch.randn(4, 5), torch.randn(5, 7)]),
    "baddbmm": (torch.baddbmm, [torch.randn(3, 4, 7), torch.randn(3, 4, 5), torch.randn(3, 5, 7)]),
    "convolution": (lambda x, w: torch.nn.functional.conv2d(x, w, stride=2, groups=2), [X, WEIGHTS]),
    "convolution transposed": (lambda x, w: torch.nn.functional.conv_transpose2d(x, w, groups=1), [X, ACROSS]),
}


@pytest.mark.parametrize("name", CALLS)
def test_flops_are_those_that_torch_counts(name: str) -> None:
    function, arguments = CALLS[name]
    with FlopCounterMode(display=False) as counter:
        result = function(*arguments)
    read = [Size(tuple(tensor.shape), 4) for tensor in arguments]
    cost = cost_of(name.partition(" ")[0], read, [Size(tuple(result.shape), 4)])
    assert cost.flops == counter.get_total_flops() > 0
    assert cost.bytes == sum(tensor.numel() * 4 for tensor in (*arguments, result))


@pytest.mark.parametrize("width", [8, 40])
def test_attention_costs_two_products(width: int) -> None:
    shapes = (Q.shape, K.shape, (*V.shape[:-1], width))
    read = [Size(tuple(shape), 4) for shape in shapes]
    cost = cost_of("_scaled_dot_product_flash_attention_for_cpu", read, [read[0]])
    assert cost.flops == sdpa_flop_count(*shapes)


def test_several_values_in_one_number_cost_no_less_than_one_by_one() -> None:
    """Two rows of a product as one complex row, or as the halves of one number of double precision."""
    plain = cost_of("mm", [Size((8, 5), 4), Size((5, 7), 4)], [Size((8, 7), 4)])
    packed = cost_of("mm", [Size((4, 5), 8), Size((5, 7), 8)], [Size((4, 7), 8)])
    assert packed.flops == 2 * plain.flops
    assert cost_of("mm", [Size((4, 5), 16), Size((5, 7), 16)], [Size((4, 7), 16)]).flops == 8 * plain.flops


def test_who_says_of_a_product_that_it_made_nothing_has_no_share() -> None:
    a = Place(0, "float32", (16, 16), (16, 1), 0)
    out = Place(1, "float32", (16, 16), (16, 1), 0)
    assert share_of_kernels([Operator("aten.mm.out", (a, a), {"out": out}, (out,))], Cost(10**6, 10**6)) > 0.99
    assert share_of_kernels([Operator("aten.mm.out", (a, a), {"out": out}, ())], Cost(10**6, 10**6)) == 0.0


def test_other_operators_cost_one_flop_an_element_and_copies_none() -> None:
    assert cost_of("exp", [Size((3, 4), 4)], [Size((3, 4), 4)]) == Cost(12, 96)
    assert cost_of("sum", [Size((3, 4), 2)], [Size((), 2)]) == Cost(12, 26)
    assert cost_of("clone", [Size((3, 4), 4)], [Size((3, 4), 4)]) == Cost(0, 96)


def test_distances_bilinear_forms_and_fourier_transforms_cost_what_they_compute() -> None:
    assert cost_of("_cdist_forward", [Size((2, 5, 7), 4), Size((2, 6, 7), 4)], [Size((2, 5, 6), 4)]).flops == 3 * 420
    read = [Size((9, 1, 5, 1), 4), Size((1, 4, 5, 6), 4), Size((9, 1, 1, 6), 4)]
    assert cost_of("_trilinear", read, [Size((9, 4), 4)]).flops >= 9 * 4 * 5 * 6
    assert cost_of("_fft_c2c", [Size((3, 64), 8)], [Size((3, 64), 8)]).flops == 4 * 5 * 192 * 6
    product = [Size((7,), 4), Size((4, 5), 4), Size((5, 7), 4)]
    assert cost_of("_addmm_activation", product, [Size((4, 7), 4)]).flops == 280


@pytest.mark.parametrize(
    "name", ["einsum", "lstm", "linalg_inv_ex", "_convolution_double_backward", "conv2d", "_trilinear"]
)
def test_who_has_torch_run_what_has_no_known_cost_has_no_share(name: str) -> None:
    x = Place(0, "float32", (16, 16), (16, 1), 0)
    add = Operator("aten.add.Tensor", (x, x), {}, (x,))
    assert share_of_kernels([add], Cost(10**6, 10**6)) > 0.99
    assert share_of_kernels([add, Operator(f"aten.{name}.default", (x, x), {}, (x,))], Cost(10**6, 10**6)) == 0.0


def test_recorded_steps_cost_what_their_tensors_say() -> None:
    def place(dtype: str, *shape: int) -> Place:
        return Place(0, dtype, shape, (1,) * len(shape), 0)

    step = Operator(
        "aten.mm.default", (place("bfloat16", 4, 5), place("bfloat16", 5, 7)), {}, (place("float32", 4, 7),)
    )
    assert cost_of_steps([step, step]) == Cost(2 * 280, 2 * (40 + 70 + 112))
    odd = [place("bool", 3), place("float8_e4m3fn", 3), place("complex64", 3), place("int8", 3)]
    assert cost_of_steps([Operator("aten.add.Tensor", tuple(odd), {}, ())]).bytes == 3 + 3 + 24 + 3


@pytest.mark.parametrize(
    ("by_torch", "whole", "share"),
    [
        (Cost(0, 0), Cost(100, 100), 1.0),
        (Cost(10, 50), Cost(100, 100), 0.5),
        (Cost(50, 10), Cost(100, 100), 0.5),
        (Cost(500, 10), Cost(100, 100), 0.0),
        (Cost(5, 25), Cost(0, 100), 0.75),
        (Cost(5, 5), Cost(0, 0), 1.0),
    ],
)
def test_the_share_is_the_lesser_of_flops_and_bytes(by_torch: Cost, whole: Cost, share: float) -> None:
    assert kernel_share(by_torch, whole) == share


def test_the_whole_is_what_the_tasks_own_code_costs() -> None:
    def model(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.relu((a @ b).t())

    half = Place(0, "float32", (16, 16), (16, 1), 0)
    work = [Operator("aten.relu.default", (half,), {}, (half,))]
    details = hybrid_details(work, model, [torch.randn(16, 16), torch.randn(16, 16)])
    assert details == {"kernel_share": round(1 - 2048 / (3072 + 2048), 4), "torch_operators": ["aten.relu.default"]}
    assert hybrid_details([], model, []) == {}
