"""Each operation gives what Triton's interpreter gives, or torch where that one is wrong (narrow floats)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import support_ir_kernels
import torch
from support_ttir import launch

CASES = support_ir_kernels.cases()


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[torch.Tensor]]:
    """What Triton's interpreter computes; it can only run in a process of its own."""
    file = tmp_path_factory.mktemp("interpreted") / "results.pt"
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    script = str(Path(support_ir_kernels.__file__))
    subprocess.run([sys.executable, script, str(file)], env=environment, check=True)
    results: dict[str, list[torch.Tensor]] = torch.load(file)
    return results


@pytest.mark.parametrize("name", CASES)
def test_an_operation_gives_what_tritons_interpreter_gives(
    name: str, interpreted: dict[str, list[torch.Tensor]]
) -> None:
    kernel, grid, arguments, constants = support_ir_kernels.cases()[name]
    launch(kernel, grid, arguments, constants)
    tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    for computed, expected in zip(tensors, interpreted[name], strict=True):
        torch.testing.assert_close(computed, expected, equal_nan=True)
