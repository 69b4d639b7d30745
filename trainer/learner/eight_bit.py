"""AdamW with moments of one byte a number (`model/ops/eight_bit.py`).

Invariant: weights and gradients stay float32, and a step computes in float32, some rows at a time, so its result is the
same bits on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from weir.trainer.model.ops.eight_bit import KINDS, SCALE, has_blocks, in_float, quantised
from weir.trainer.model.sharded_model import like, local_rows

STATE = ("step", *KINDS, *(kind + SCALE for kind in KINDS))
_AT_ONCE = 1 << 20  # numbers that a step has in float32


class AdamW8bit(torch.optim.Optimizer):
    """AdamW as torch's, without options."""

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        *,
        lr: float,
        betas: tuple[float, float],
        weight_decay: float,
        eps: float = 1e-8,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "eps": eps})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step of every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step(parameter, group)

    def _step(self, parameter: torch.nn.Parameter, group: dict[str, Any]) -> None:
        if not self.state[parameter]:
            zeros = {kind: torch.zeros_like(local_rows(parameter), dtype=torch.float32) for kind in KINDS}
            self.set_moments(parameter, {"step": torch.tensor(0.0), **zeros})
        state = self.state[parameter]
        state["step"] += 1
        weights = _matrix(local_rows(parameter))
        gradient = _matrix(local_rows(parameter.grad))
        moments = {kind: _matrix(local_rows(state[kind])) for kind in state if kind != "step"}
        rows = max(1, _AT_ONCE // max(weights.shape[-1], 1))
        for start in range(0, len(weights), rows):
            part = slice(start, start + rows)
            _update(
                weights[part],
                gradient[part],
                {kind: moment[part] for kind, moment in moments.items()},
                float(state["step"]),
                group,
            )

    def set_moments(self, parameter: torch.nn.Parameter, moments: Mapping[str, torch.Tensor]) -> None:
        """Set a parameter's moments, whether float32 or codes with scales, and their steps; rows are this rank's."""
        state = {"step": moments["step"].clone()}
        found = quantised(moments) if has_blocks(parameter) else in_float(moments)
        device = local_rows(parameter).device
        state |= {kind: like(parameter, found[kind].to(device)) for kind in found if kind != "step"}
        self.state[parameter] = state


def _update(
    weights: torch.Tensor,
    gradient: torch.Tensor,
    moments: dict[str, torch.Tensor],
    step: float,
    group: dict[str, Any],
) -> None:
    """AdamW (arXiv 1711.05101, algorithm 2) of some rows, in place."""
    slow, fast = group["betas"]
    in_blocks = KINDS[0] + SCALE in moments
    first, second = in_float(moments).values() if in_blocks else moments.values()
    first.lerp_(gradient, 1 - slow)
    second.mul_(fast).addcmul_(gradient, gradient, value=1 - fast)
    weights.mul_(1 - group["lr"] * group["weight_decay"])
    divisor = second.sqrt().div_((1 - fast**step) ** 0.5).add_(group["eps"])
    weights.addcdiv_(first, divisor, value=-group["lr"] / (1 - slow**step))
    if in_blocks:
        for kind, numbers in quantised({KINDS[0]: first, KINDS[1]: second}).items():
            moments[kind].copy_(numbers)


def _matrix(tensor: torch.Tensor) -> torch.Tensor:
    """A view of rows: of experts one below the other; of a vector, its numbers one below the other."""
    return tensor.flatten(0, -2) if tensor.ndim > 1 else tensor.reshape(-1, 1)
