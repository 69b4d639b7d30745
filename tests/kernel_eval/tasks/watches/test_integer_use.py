"""How integers of a task are used: as numbers, as what is compared, as counts of shifts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from weir.kernel_eval.tasks.watches.integer_use import IntegerUse

POSITIONS = torch.arange(6)
USES: dict[str, tuple[Callable[[Any, Any], torch.Tensor], frozenset[int], dict[int, int], dict[int, set[int]]]] = {
    "a length": (lambda x, n: x * (torch.arange(6) < n[:, None]), frozenset({0}), {}, {}),
    "a length as another dtype": (lambda x, n: x * (torch.arange(6.0) < n.float()[:, None]), frozenset({0}), {}, {}),
    "a length and a divisor": (lambda x, n: x * (torch.arange(6) < n[:, None]) / n[:, None], frozenset({0}), {}, {}),
    "a length less one": (lambda x, n: x * (torch.arange(6) <= (n - 1)[:, None]), frozenset({0}), {}, {}),
    "a buffer of positions": (lambda x, n: x * (n[:, None] > POSITIONS), frozenset({0}), {}, {}),
    "a kind": (lambda x, n: x * (n == 3)[:, None], frozenset({0}), {}, {}),
    "a kind beside an order": (lambda x, n: x * (n > 3)[:, None], frozenset({0}), {}, {0: {2, 3, 4}}),
    "a number": (lambda x, n: x * n[:, None], frozenset(), {}, {}),
    "a number that is compared": (lambda x, n: (n * 2 > 3) * x.sum(-1), frozenset(), {}, {0: {2, 3, 4}}),
    "a place of a largest value": (lambda x, n: x * (x.argmax(-1) == n)[:, None], frozenset({0}), {}, {}),
    "an answer": (lambda x, n: torch.where(n == 3, 0, n), frozenset(), {}, {}),
    "an integer beside an input": (lambda x, n: x * (x < n[:, None]), frozenset(), {}, {}),
    "a count": (lambda x, n: (torch.ones(4, dtype=torch.int32) << n.int()) * x.sum(-1), frozenset(), {0: 32}, {}),
}  # fmt: skip


EQUAL: dict[str, tuple[Callable[..., torch.Tensor], bool]] = {
    "a kind": (lambda x, n: x * (n == 3)[:, None], True),
    "one of several": (lambda x, n: x * torch.isin(n, torch.tensor([3, 4]))[:, None], True),
    "a label that may be left out": (lambda x, n: torch.nn.functional.nll_loss(x, n), True),
    "what is not zero": (lambda x, n: x * n.bool()[:, None], True),
    "an index": (lambda x, n: x[:, n], False),
    "a length": (lambda x, n: x * (torch.arange(6) < n[:, None]), False),
}


@pytest.mark.parametrize("use", EQUAL)
def test_what_is_compared_for_equality_is_known(use: str) -> None:
    function, is_equal = EQUAL[use]
    given = [torch.randn(4, 6), torch.tensor([1, 2, 3, 4])]
    watched = IntegerUse(given)
    with watched:
        function(*given)
    assert watched.asked == ({0} if is_equal else set())


@pytest.mark.parametrize("use", USES)
def test_an_integer_is_known_by_what_is_done_with_it(use: str) -> None:
    function, compared, shifts, bounds = USES[use]
    given = [torch.randn(4, 6), torch.tensor([1, 2, 3, 4])]
    watched = IntegerUse(given)
    with watched:
        answer = function(*given)
    assert (watched.compared([answer]), watched.shifts, watched.bounds) == (compared, shifts, bounds)
