"""Compares a candidate's answer with the reference's: its form, then its values, in the task's precision or float64."""

from __future__ import annotations

from typing import Any

import torch

from weir.kernel_eval.ipc.messages import Output
from weir.kernel_eval.judge.channel.faults import FaultDetected
from weir.kernel_eval.judge.checks.tolerance import Difference, compare
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.tasks.reference import Expected, Reference


def difference(
    reference: Reference, model: Any, inputs: list[Any], expected: Expected, outputs: list[torch.Tensor]
) -> Difference | None:
    """The first error of an answer; None if it agrees with the reference in the task's precision or in float64."""
    differences = _compare_all(outputs, expected.outputs)
    if not differences:
        return None
    precise = reference.expected_float64(model, inputs)
    return differences[0] if precise is None or _compare_all(outputs, precise, expected.outputs) else None


def check_form(outputs: tuple[Output, ...], expected: list[torch.Tensor]) -> None:
    """Check number, type, shape and dtype of the outputs. Raises `FaultDetected` if one differs."""
    if len(outputs) != len(expected):
        raise FaultDetected(Stage.LOADED, Fault.SHAPE_MISMATCH, f"{len(outputs)} outputs, expected {len(expected)}")
    for index, (output, tensor) in enumerate(zip(outputs, expected, strict=True)):
        if output.kind != "Tensor":
            raise FaultDetected(
                Stage.LOADED, Fault.SHAPE_MISMATCH, f"output {index} is a {output.kind}, expected a torch.Tensor"
            )
        if output.shape != tuple(tensor.shape):
            message = f"output {index} has shape {list(output.shape)}, expected {list(tensor.shape)}"
            raise FaultDetected(Stage.LOADED, Fault.SHAPE_MISMATCH, message)
        dtype = str(tensor.dtype).removeprefix("torch.")
        if output.dtype != dtype:
            raise FaultDetected(
                Stage.LOADED, Fault.DTYPE_MISMATCH, f"output {index} is {output.dtype}, expected {dtype}"
            )


def _compare_all(
    outputs: list[torch.Tensor], expected: list[torch.Tensor], rounded: list[torch.Tensor] | None = None
) -> list[Difference]:
    own: list[torch.Tensor] | list[None] = rounded or [None] * len(expected)
    compared = (compare(got, reference, low) for got, reference, low in zip(outputs, expected, own, strict=True))
    return [difference for difference in compared if difference is not None]


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's bytes, shape (num_bytes,), for bitwise comparison."""
    return tensor.reshape(-1).view(torch.uint8) if tensor.numel() else tensor.reshape(-1)
