"""AdamW over one module: learning-rate schedule, gradient clipping, weight average, and the state that a file holds.

Invariant: the state that `Stepper.state` returns and `Stepper.load` takes is the same bits on any number of ranks. The
settings decide rates and decay; the file holds moments, the weight average and the number of steps, of which the
learning rate is a pure function, so a resumed run continues its schedule.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from weir.trainer.learner.eight_bit import AdamW8bit
from weir.trainer.model.ops.eight_bit import KINDS, in_float
from weir.trainer.model.sharded_model import like, local_rows
from weir.trainer.settings.config import TrainerConfig

ScheduleName = Literal["constant", "linear", "cosine"]


def learning_rate(
    step: int, lr: float, *, schedule: ScheduleName, warmup_steps: int, total_steps: int | None, min_ratio: float
) -> float:
    """The learning rate of step 0, 1, …: a linear warm-up to `lr`, then the schedule, down to lr × min_ratio."""
    if step < warmup_steps:
        return lr * (step + 1) / warmup_steps
    if schedule == "constant":
        return lr
    assert total_steps is not None
    done = min((step - warmup_steps) / max(total_steps - warmup_steps, 1), 1.0)
    left = 1 - done if schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return lr * (min_ratio + (1 - min_ratio) * left)


class WeightAverage:
    """The exponential moving average of a module's weights: θ̄ ← d·θ̄ + (1 - d)·θ after each optimiser step.

    Source: Tarvainen and Valpola, 2017 (arXiv 1703.01780, equation 1). It starts as a copy of the weights and is
    elementwise: each rank averages its own shard, and the bits do not depend on the sharding. The module must keep its
    parameter objects.
    """

    def __init__(self, module: torch.nn.Module, decay: float) -> None:
        self.decay = decay
        self._weights = [_local(parameter) for parameter in module.parameters()]
        self._means = [weight.clone() for weight in self._weights]

    def by_name(self, module: torch.nn.Module) -> Iterator[tuple[str, Any, torch.Tensor]]:
        """Name, parameter and average of each parameter of the module; of sharded ones, this rank's rows."""
        for (name, parameter), mean in zip(module.named_parameters(), self._means, strict=True):
            yield name, parameter, mean

    def tensors(self) -> list[torch.Tensor]:
        """The averages."""
        return list(self._means)

    def restart(self) -> None:
        """Set the average to the current weights."""
        for mean, weight in zip(self._means, self._weights, strict=True):
            mean.copy_(weight)

    def update(self) -> None:
        """Update the average with the weights after a step."""
        for mean, weight in zip(self._means, self._weights, strict=True):
            mean.lerp_(weight, 1 - self.decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Swap averages and weights within the block."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        for mean, weight in zip(self._means, self._weights, strict=True):
            kept = weight.clone()
            weight.copy_(mean)
            mean.copy_(kept)


def _local(parameter: Any) -> torch.Tensor:
    """The storage of a parameter; with FSDP, that of this rank's shard."""
    data = parameter.detach()
    share: torch.Tensor = data.to_local() if hasattr(data, "to_local") else data
    return share


def _optimizer(
    trained: list[torch.nn.Parameter], config: TrainerConfig, *, lr: float, weight_decay: float
) -> torch.optim.AdamW | AdamW8bit:
    if config.optimizer == "adamw_8bit":
        return AdamW8bit(trained, lr=lr, betas=config.betas, weight_decay=weight_decay)
    # one pass over memory that lies on the CPU; elsewhere torch chooses
    fused = True if config.offload_weights else None
    return torch.optim.AdamW(trained, lr=lr, betas=config.betas, weight_decay=weight_decay, fused=fused)


_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


class Stepper:
    """The optimiser of a module; `lr` is its peak learning rate, `ema` the decay of its weight average."""

    def __init__(
        self,
        module: torch.nn.Module,
        config: TrainerConfig,
        *,
        lr: float,
        weight_decay: float,
        ema: float | None = None,
    ) -> None:
        self.module = module
        self.config = config
        self.lr = lr
        self.weight_decay = weight_decay
        self.num_steps = 0
        self.average = None if ema is None else WeightAverage(module, ema)
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.optimizer = _optimizer(trained, config, lr=lr, weight_decay=weight_decay)

    def clear(self) -> None:
        """Delete the gradient."""
        self.optimizer.zero_grad(set_to_none=True)

    def clip(self) -> float:
        """Clip the gradient to `grad_clip`; returns its L2 norm before clipping, over all ranks."""
        norm: Any = torch.nn.utils.clip_grad_norm_(self.module.parameters(), self.config.grad_clip)
        return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)

    def step(self) -> None:
        """Take one optimiser step."""
        config = self.config
        rate = learning_rate(
            self.num_steps,
            self.lr,
            schedule=config.lr_schedule,
            warmup_steps=config.lr_warmup_steps,
            total_steps=config.lr_total_steps,
            min_ratio=config.lr_min_ratio,
        )
        for group in self.optimizer.param_groups:
            group.update(lr=rate, betas=config.betas, weight_decay=self.weight_decay)
        self._move_moments(to_weights=True)
        self.optimizer.step()
        self.num_steps += 1
        if self.average is not None:
            self.average.update()
        self._move_moments(to_weights=False)

    def weights(self) -> dict[str, Any]:
        """The module's whole state dict on the CPU; empty on all ranks but the first."""
        if dist.is_initialized():
            return get_model_state_dict(self.module, options=_WHOLE)
        return {name: weight.cpu() for name, weight in self.module.state_dict().items()}

    def averaged_weights(self) -> dict[str, Any]:
        """The averaged weights, in the form of `weights`."""
        assert self.average is not None
        with self.average.in_place():
            return copy.deepcopy(self.weights())  # on a CPU they may be the module's own memory

    def state(self) -> dict[str, Any]:
        """Moments, average and number of steps, whole and on the CPU; all ranks but the first get no tensors."""
        state = {"optimizer": self._optimizer_state(), "num_steps": self.num_steps}
        return state if self.average is None else state | {"average": self.averaged_weights()}

    def _optimizer_state(self) -> dict[str, Any]:
        """The optimiser's state in torch's distributed form; without ranks it is built here, ten times as fast."""
        if (dist.is_initialized() or not self.optimizer.state) and isinstance(self.optimizer, torch.optim.AdamW):
            return get_optimizer_state_dict(self.module, self.optimizer, options=_WHOLE)
        own = self.optimizer.state_dict()
        names = [name for name, parameter in self.module.named_parameters() if parameter.requires_grad]
        moments = {
            names[at]: {name: value.cpu() for name, value in of_one.items()} for at, of_one in own["state"].items()
        }
        groups = [group | {"params": [names[at] for at in group["params"]]} for group in own["param_groups"]]
        return {"state": moments, "param_groups": groups}

    def tensors(self, device: torch.device) -> Iterator[torch.Tensor]:
        """Weights, buffers, moments and average that lie on a device of this type; the process uses one of each."""
        kind = device.type  # devices compare by their index too, and "cuda" is not "cuda:0"
        yield from (tensor for tensor in self.module.parameters() if tensor.device.type == kind)
        yield from (tensor for tensor in self.module.buffers() if tensor.device.type == kind)
        for state in self.optimizer.state.values():
            yield from (value for value in state.values() if torch.is_tensor(value) and value.device.type == kind)
        if self.average is not None:
            yield from self.average.tensors()

    def load_weights(self, weights: dict[str, Any]) -> None:
        """Load the result of `weights`. Raises `RuntimeError` where it belongs to another module."""
        set_model_state_dict(self.module, weights, options=StateDictOptions(full_state_dict=True))

    def load(self, state: dict[str, Any]) -> None:
        """Load the result of `state`. Raises `KeyError` or `RuntimeError` where it belongs to another module."""
        self._load_moments(state["optimizer"])
        self.num_steps = state["num_steps"]
        self._move_moments(to_weights=False)
        if self.average is not None:
            self.average.restart()
            if "average" in state:
                with self.average.in_place():
                    self.load_weights(state["average"])

    def _load_moments(self, state: dict[str, Any]) -> None:
        """Load the result of `_optimizer_state`, whichever optimiser wrote it."""
        found: dict[str, dict[str, torch.Tensor]] = state["state"]
        coded = any(kind not in ("step", *KINDS) for moments in found.values() for kind in moments)
        if not coded and isinstance(self.optimizer, torch.optim.AdamW):
            options = StateDictOptions(full_state_dict=True)
            set_optimizer_state_dict(self.module, self.optimizer, state, options=options)
            return
        for name, parameter in self.module.named_parameters():
            if name in found:
                self.set_moments(parameter, found[name])

    def set_moments(self, parameter: torch.nn.Parameter, moments: Mapping[str, torch.Tensor]) -> None:
        """Set a parameter's moments and steps from this rank's rows of them, in the form of either optimiser."""
        if isinstance(self.optimizer, AdamW8bit):
            self.optimizer.set_moments(parameter, moments)
            return
        device = local_rows(parameter).device
        state = {kind: like(parameter, rows.to(device)) for kind, rows in in_float(moments).items()}
        self.optimizer.state[parameter] = {"step": moments["step"], **state}

    def put_moments_away(self) -> None:
        """With `offload_optimizer`, move the moments to CPU memory."""
        self._move_moments(to_weights=False)

    def _move_moments(self, *, to_weights: bool) -> None:
        """With `offload_optimizer`, keep the moments in CPU memory except during the step."""
        if not self.config.offload_optimizer:
            return
        for parameter, state in self.optimizer.state.items():
            for name in state.keys() - {"step"}:
                state[name] = state[name].to(parameter.device if to_weights else "cpu")
