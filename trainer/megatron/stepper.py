"""AdamW of Megatron-core's distributed optimiser: gradients summed over ranks, clipped, and stepped by their owners.

Invariant: the same update and average as `learner/optimizer.py`: every weight decays, betas and rates are those of the
settings, and the norm is that of the whole gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.distributed.finalize_model_grads import finalize_model_grads
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

from weir.trainer.learner.optimizer import learning_rate
from weir.trainer.learner.saved_state import AVERAGE, STEP, WEIGHTS
from weir.trainer.megatron.owned_shards import MOMENTS, OwnedShard, groups_of, owned_shards, whole
from weir.trainer.megatron.packed_model import PackedChunks
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.megatron import MegatronSettings


class MegatronStepper:
    """The optimiser of a model, whose gradients lie in the buffers of `wrapped`, one for each part."""

    def __init__(self, network: PackedChunks, config: TrainerConfig, layout: MegatronSettings) -> None:
        self.config = config
        self.num_steps = 0
        buffers = DistributedDataParallelConfig(
            use_distributed_optimizer=True, grad_reduce_in_fp32=True, overlap_grad_reduce=False
        )
        self.wrapped: list[Any] = [DistributedDataParallel(network.config, buffers, part) for part in network]
        options = OptimizerConfig(
            optimizer="adam",
            lr=config.peak_lr,
            min_lr=0.0,
            weight_decay=config.weight_decay,
            adam_beta1=config.betas[0],
            adam_beta2=config.betas[1],
            clip_grad=config.grad_clip,
            bf16=network.config.bf16,
            params_dtype=network.config.params_dtype,
            use_distributed_optimizer=True,
        )
        if layout.optimizer_offload_fraction and network.config.bf16:
            _offload(options, layout.optimizer_offload_fraction)
        # Without overrides every weight decays; the default leaves out norms and biases.
        self.optimizer: Any = get_megatron_optimizer(
            options, self.wrapped, config_overrides={}, use_gloo_process_groups=False
        )
        self.owned = list(owned_shards(self.optimizer))
        self._groups = groups_of(self.optimizer)
        self._at = {shard.parameter: at for at, shard in enumerate(self.owned)}
        self.average = None if config.ema is None else [shard.main.detach().clone() for shard in self.owned]

    def clear(self) -> None:
        """Delete the gradient."""
        for part in self.wrapped:
            part.zero_grad_buffer()
        self.optimizer.zero_grad()

    def sum_over_ranks(self, *, whole: bool = False) -> None:
        """Add the gradients of all ranks; each keeps the part that it steps, or with `whole` all of it."""
        finalize_model_grads(self.wrapped, None, force_all_reduce=whole)

    def clip(self) -> float:
        """Sum the gradient over ranks and clip it; returns its L2 norm before clipping."""
        self.sum_over_ranks()
        norm = self.norm()
        for one in self.optimizer.chained_optimizers:
            _clip(one.get_parameters(), norm, self.config.grad_clip)
        return norm

    def norm(self) -> float:
        """The L2 norm of the gradient, which has been summed over ranks."""
        self.optimizer.prepare_grads()
        return float(self.optimizer.get_grad_norm())

    def step(self) -> None:
        """Take one optimiser step."""
        config = self.config
        rate = learning_rate(
            self.num_steps,
            config.peak_lr,
            schedule=config.lr_schedule,
            warmup_steps=config.lr_warmup_steps,
            total_steps=config.lr_total_steps,
            min_ratio=config.lr_min_ratio,
        )
        for group in self.optimizer.param_groups:
            group.update(lr=rate, betas=config.betas, weight_decay=config.weight_decay)
        self._move_moments(to_weights=True)
        self.optimizer.step_with_ready_grads()
        self.num_steps += 1
        if self.average is not None:
            for mean, shard in zip(self.average, self.owned, strict=True):
                mean.lerp_(shard.main.detach(), 1 - float(config.ema or 0.0))
        self._move_moments(to_weights=False)

    def whole(self, kind: str, parameter: torch.nn.Parameter) -> torch.Tensor:
        """This rank's part of a parameter in float32: its weights, their average or a moment; all owners call it."""
        at = self._at.get(parameter)
        own = None if at is None else (self.owned[at], self._numbers(kind, at))
        return whole(parameter, own, self._groups[parameter])

    def _numbers(self, kind: str, at: int) -> torch.Tensor:
        """What this rank owns of one kind."""
        if kind == AVERAGE:
            assert self.average is not None
            return self.average[at]
        found: torch.Tensor = self.owned[at].main if kind == WEIGHTS else self.owned[at].state[kind]
        return found

    def set_moments(self, shard: OwnedShard, moments: dict[str, torch.Tensor]) -> None:
        """Set the moments of a shard, after `num_steps` steps."""
        shard.state.update({kind: numbers.to(shard.main.device) for kind, numbers in moments.items()})
        if isinstance(shard.optimizer, torch.optim.AdamW):
            shard.state[STEP] = torch.tensor(float(self.num_steps))
        else:  # the fused ones count by group
            for group in shard.optimizer.param_groups:
                group[STEP] = self.num_steps
        self._move_moments(to_weights=False)

    def _move_moments(self, *, to_weights: bool) -> None:
        """With `offload_optimizer`, keep the moments in CPU memory except during the step."""
        if not self.config.offload_optimizer:
            return
        for shard in self.owned:
            state = shard.state
            for kind in MOMENTS:
                if kind in state:
                    state[kind] = state[kind].to(shard.main.device if to_weights else "cpu")


def _offload(options: OptimizerConfig, fraction: float) -> None:
    """Have Megatron-core build an optimiser that steps a share of the weights in CPU memory.

    It holds the float32 ones of weights in bfloat16 itself, which would otherwise lie on the device as well. Weights in
    float32, those of a critic from another file, stay where they are: it cannot step views of them.
    """
    options.optimizer_cpu_offload = True
    options.optimizer_offload_fraction = fraction
    options.overlap_cpu_optimizer_d2h_h2d = True
    # Not by the constructor, which looks at the version of Transformer Engine (0.16); this optimiser needs none.
    options.use_precision_aware_optimizer = options.use_precision_aware_optimizer_no_fp8_or_ds_fp8 = True


def _clip(parameters: list[torch.nn.Parameter], norm: float, limit: float) -> None:
    """As torch.nn.utils.clip_grad_norm_, by a norm that is known."""
    share = min(1.0, limit / (norm + 1e-6))
    for parameter in parameters:
        gradient = getattr(parameter, "decoupled_grad", None)  # where weights in bfloat16 have gradients in float32
        gradient = parameter.grad if gradient is None else gradient
        if gradient is not None:
            gradient.mul_(share)
