"""What memory holds that nothing has written."""

from __future__ import annotations

import pytest
import torch

from weir.kernel_eval.ipc import unwritten


@pytest.mark.parametrize("size", [0, 1, 7, 4096, 32_792, 32_793, 100_001])
def test_each_byte_has_each_content_in_one_of_eight_calls(size: int) -> None:
    found = torch.stack([unwritten.fill(torch.empty(size, dtype=torch.uint8), number) for number in range(8)])
    is_first = (torch.arange(size) % 8 == 0).to(torch.uint8)  # which holds the one of an integer
    each = torch.tensor([0, 0, 1, 0x7F, 0x7F, 0x81, 0xFF, 0xFF], dtype=torch.uint8).view(8, 1).repeat(1, size)
    each[1] = is_first
    assert torch.equal(found.sort(0).values, each)
    both = (found == 0xFF) | (found == 0x7F)
    assert bool((both | both.roll(1, 0)).all()), "in each two calls, one of those that no sum and no flag takes"
    assert torch.equal(unwritten.fill(torch.empty(size, dtype=torch.uint8), 8), found[0])


@pytest.mark.parametrize("step", [1, 2, 3, 64, 1000, 4096])
def test_elements_a_step_apart_have_all_of_them(step: int) -> None:
    values = unwritten.fill(torch.empty(1 << 20, dtype=torch.uint8)).view(torch.float32)[::step]
    tiny = (values.abs() < 1e-37) & (values != 0)
    kinds = [values.isnan(), values == 0, values > 1e38, tiny & (values < 0), tiny & (values > 0)]
    assert all(float(kind.float().mean()) > 0.05 for kind in kinds)
    assert bool(torch.stack(kinds).any(0).all())
