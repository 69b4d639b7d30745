"""Compares a candidate's answer with the reference's: its form, then its values, in the task's precision or float64."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from weir.kernel_eval.ipc.messages import Output
from weir.kernel_eval.judge.channel.faults import FaultDetected
from weir.kernel_eval.judge.checks.tolerance import Difference, compare
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.tasks.reference import Expected, Reference

_GOLDEN = 0.6180339887498949  # its multiples are spread evenly between whole numbers


def difference(
    reference: Reference, model: Any, inputs: list[Any], expected: Expected, outputs: list[torch.Tensor]
) -> Difference | None:
    """The first error of an answer; None if it agrees with the reference in the task's precision or in float64.

    A slice of an answer is compared by its own scale only where the reference's own error is known.
    """
    found = _first(compare(got, wanted) for got, wanted in zip(outputs, expected.outputs, strict=True))
    if found is None:
        return None
    precise = reference.expected_float64(model, inputs)
    if precise is None:
        pairs = zip(outputs, expected.outputs, strict=True)
        return _first(compare(got, wanted, by_slices=False) for got, wanted in pairs)
    nudged = reference.expected_float64(model, [_nudged(value) for value in inputs]) or precise
    return (
        _first(
            compare(got, exact, torch.maximum(_distance(rounded, exact), _distance(near, exact)))
            for got, rounded, exact, near in zip(outputs, expected.outputs, precise, nudged, strict=True)
        )
        and found
    )


def _first(differences: Iterable[Difference | None]) -> Difference | None:
    return next((difference for difference in differences if difference is not None), None)


def _distance(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    return (one.to(two.dtype) - two).abs()


def _nudged(value: Any) -> Any:
    """An argument in float64, off by a rounding of float32: what that changes in an answer, no kernel can avoid."""
    if isinstance(value, list | tuple):
        return type(value)(_nudged(item) for item in value)
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    own = torch.float64 if value.dtype is torch.float64 else torch.float32
    numbers = torch.arange(value.numel(), dtype=torch.float64, device=value.device).view(value.shape)
    return value.double() * (1 + torch.finfo(own).eps * (numbers * _GOLDEN % 1 - 0.5))


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


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's bytes, shape (num_bytes,), for bitwise comparison."""
    return tensor.reshape(-1).view(torch.uint8) if tensor.numel() else tensor.reshape(-1)
