"""Which elements of an answer kernels have to store, where torch copies an input or fills a tensor first."""

from __future__ import annotations

import torch

from weir.kernel_eval.judge.checks.expected_answers import num_made


def test_a_copy_with_few_changes_is_made_where_it_differs() -> None:
    table = torch.randn(200, 32)
    changed = table.clone()
    changed[[3, 7]] += 1
    assert num_made(changed, [torch.randn(32), table]) == 64
    assert num_made(changed, [table.double()]) == 6400
    assert num_made(table, [table]) == 0


def test_one_value_is_filled_where_more_than_half_has_it() -> None:
    tokens = torch.full((8, 32), -1)
    tokens[:, 0] = torch.arange(8)
    assert num_made(tokens, []) == 8
    assert num_made(torch.arange(256).view(8, 32) % 3, []) == 256
    assert num_made(torch.zeros(4, dtype=torch.complex64), []) == 0
    assert num_made(torch.rand(4, 4) < 2, []) == 0
