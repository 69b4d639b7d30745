"""What memory holds that nothing has written."""

from __future__ import annotations

import pytest
import torch

from weir.kernel_eval.ipc import unwritten


@pytest.mark.parametrize("size", [0, 1, 7, 4096, 32_792, 32_793, 100_001])
def test_each_byte_has_each_content_in_one_of_four_calls(size: int) -> None:
    found = torch.stack([unwritten.fill(torch.empty(size, dtype=torch.uint8), number) for number in range(4)])
    assert torch.equal(
        found.sort(0).values, torch.tensor([0, 0x7F, 0x81, 0xFF], dtype=torch.uint8).view(4, 1) + 0 * found
    )
    again = unwritten.fill(torch.empty(size, dtype=torch.uint8), 4)
    assert torch.equal(again, found[0])


@pytest.mark.parametrize("step", [1, 2, 3, 64, 1000, 4096])
def test_elements_a_step_apart_have_all_of_them(step: int) -> None:
    values = unwritten.fill(torch.empty(1 << 20, dtype=torch.uint8)).view(torch.float32)[::step]
    kinds = [values.isnan(), values == 0, values > 1e38, (values < 0) & (values > -1e-37)]
    assert all(float(kind.float().mean()) > 0.1 for kind in kinds)
    assert bool(torch.stack(kinds).any(0).all())
