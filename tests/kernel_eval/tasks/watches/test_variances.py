"""Variances that are off, in each operator that takes one: what it gives follows from the variance that it has then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from weir.kernel_eval.tasks.watches.variances import VARIANCES, in_one_pass

Function = Callable[[torch.Tensor], torch.Tensor]
WEIGHT, BIAS = torch.rand(8).double() + 1, torch.randn(8).double()


class OnePass(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Variances are larger by a tenth of the mean square."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        return in_one_pass(name, args, kwargs or {}, result, lambda of: of / 10) if name in VARIANCES else result


def normed(x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    variance = x.var(dims, correction=0, keepdim=True) + x.square().mean(dims, keepdim=True) / 10
    return (x - x.mean(dims, keepdim=True)) / (variance + 1e-5).sqrt()


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * WEIGHT[:, None] + BIAS[:, None]


OPERATORS: dict[str, tuple[Function, Function]] = {
    "rows": (lambda x: functional.layer_norm(x, (6,)), lambda x: normed(x, [2])),
    "several dimensions": (
        lambda x: functional.layer_norm(x.mT, (6, 8), None, BIAS.expand(6, 8)),
        lambda x: normed(x.mT, [1, 2]) + BIAS,
    ),
    "groups": (
        lambda x: functional.group_norm(x, 2, WEIGHT, BIAS),
        lambda x: scaled(normed(x.view(4, 2, 24), [2]).view(4, 8, 6)),
    ),
    "a batch": (
        lambda x: functional.batch_norm(x, None, None, WEIGHT, BIAS, training=True),
        lambda x: scaled(normed(x, [0, 2])),
    ),
    "instances": (functional.instance_norm, lambda x: normed(x, [2])),
    "a variance": (lambda x: x.var(-1), lambda x: x.var(-1) + x.square().mean(-1) / 10),
    "a deviation of all": (torch.Tensor.std, lambda x: (x.var() + x.square().mean() / 10).sqrt()),
    "a variance and a mean": (
        lambda x: torch.var_mean(x, dim=(1, 2), keepdim=True)[0],
        lambda x: x.var((1, 2), keepdim=True) + x.square().mean((1, 2), keepdim=True) / 10,
    ),
}


@pytest.mark.parametrize(("operator", "expected"), OPERATORS.values(), ids=OPERATORS)
def test_what_follows_from_a_variance_that_is_off(operator: Function, expected: Function) -> None:
    x = torch.randn(4, 8, 6).double() + 2
    with torch.no_grad(), OnePass():
        found = operator(x)
    torch.testing.assert_close(found, expected(x))


def test_a_batch_norm_that_was_told_its_variance_stays() -> None:
    x = torch.randn(4, 8, 6).double()
    with torch.no_grad(), OnePass():
        found = functional.batch_norm(x, BIAS, WEIGHT)
    torch.testing.assert_close(found, functional.batch_norm(x, BIAS, WEIGHT))
