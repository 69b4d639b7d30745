"""The trained model of a version folder, with adapters beside a frozen base where the settings ask for LoRA.

Invariant: weights that were trained with LoRA are continued with LoRA on the same base, others without.
"""

from __future__ import annotations

from pathlib import Path

import torch

from weir.trainer.errors import TrainerUsageError
from weir.trainer.model.lora import LoraShape, check_base, check_first_weights, has_adapters, read_adapters
from weir.trainer.model.token_model import TokenModel, load_model
from weir.trainer.settings.config import SftConfig, TrainerConfig


def lora_shape(config: TrainerConfig | SftConfig) -> LoraShape | None:
    """The form of the adapters that the settings ask for; None: all weights are trained."""
    if config.lora_rank is None:
        return None
    return LoraShape(rank=config.lora_rank, alpha=config.lora_alpha, targets=tuple(config.lora_targets))


def load_trained(folder: Path, base: Path, config: TrainerConfig, device: torch.device) -> TokenModel:
    """The model of a version folder; with LoRA its frozen weights are those of `base`.

    Raises `TrainerUsageError` and `VersionError` where folder, base and settings do not belong together.
    """
    shape = lora_shape(config)
    precision, checkpointing = config.precision, config.gradient_checkpointing
    if shape is None:
        if has_adapters(folder):
            raise TrainerUsageError(
                f"{folder} was trained with LoRA, whose optimiser state is that of adapters; set lora_rank as it was, "
                "or copy its model files to a new [model] path and begin a new store"
            )
        return load_model(folder, device, precision=precision, checkpointing=checkpointing)
    if not has_adapters(folder) and folder.absolute() != base.absolute():
        check_first_weights(folder, base)
    model = load_model(base, device, precision=precision, checkpointing=checkpointing, lora=shape, seed=config.seed)
    if has_adapters(folder):
        model.load_state_dict(read_adapters(folder, shape), strict=False)
        if config.published_weights == "stepped":
            weights = {name: weight.detach().cpu() for name, weight in model.state_dict().items()}
            check_base(folder, base, weights, shape, model.compute)
    return model
