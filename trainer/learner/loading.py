"""The trained model of a version folder, with adapters beside a frozen base where the settings ask for LoRA.

Invariant: weights that were trained with LoRA are continued with LoRA on the same base, others without. One process
loads the whole model; each of several ranks reads and holds its own rows (`model/sharded_model.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from weir.trainer.errors import TrainerUsageError
from weir.trainer.learner.distributed import Ranks
from weir.trainer.model.lora import LoraShape, check_base, check_first_weights, has_adapters, read_adapters
from weir.trainer.model.sharded_model import empty_model, fill, name_in_files, read_rows
from weir.trainer.model.stored_tensors import BytesRead, StoredTensors
from weir.trainer.model.token_model import TokenModel, load_model
from weir.trainer.settings.config import SftConfig, TrainerConfig


def lora_shape(config: TrainerConfig | SftConfig) -> LoraShape | None:
    """The form of the adapters that the settings ask for; None: all weights are trained."""
    if config.lora_rank is None:
        return None
    return LoraShape(rank=config.lora_rank, alpha=config.lora_alpha, targets=tuple(config.lora_targets))


def open_model(
    folder: Path,
    device: torch.device,
    ranks: Ranks,
    *,
    count: BytesRead | None = None,
    adapters: dict[str, torch.Tensor] | None = None,
    compiled: bool = False,
    **how: Any,
) -> TokenModel:
    """A model of a folder over the ranks. `how` is what `load_model` takes; `adapters` replace the drawn ones.

    With `compiled`, torch.compile fuses what its layers do.

    Raises `TrainerUsageError` when the folder holds no model that is supported.
    """
    model = empty_model(folder, **how) if ranks.shards else load_model(folder, device, **how)
    model.context = ranks.context
    if ranks.context is not None and not model.packs:
        raise TrainerUsageError(
            f"{folder}: ranks cannot share the tokens of its sequences, because some of its layers carry a state along "
            "them; remove trainer.context_parallel"
        )
    if adapters is not None:
        model.load_state_dict(adapters, strict=False)
    if compiled:
        model.compile_layers()  # before they are sharded, as FSDP2's hooks are not compiled
    if ranks.shards:
        ranks.shard(model, model.layers)
        stored, home = StoredTensors(folder, count), ranks.home(device)
        fill(model, stored, name_in_files, network=model.network, device=device, home=home)
    return model


def load_trained(
    folder: Path, base: Path, config: TrainerConfig, device: torch.device, ranks: Ranks, count: BytesRead
) -> TokenModel:
    """The model of a version folder; with LoRA its frozen weights are those of `base`.

    Raises `TrainerUsageError` and `VersionError` where folder, base and settings do not belong together.
    """
    shape = lora_shape(config)
    how: dict[str, Any] = {
        "precision": config.precision,
        "checkpointing": config.gradient_checkpointing,
        "offloads": config.offload_activations,
        "compiled": config.compile_layers,
    }
    if shape is None:
        if has_adapters(folder):
            raise TrainerUsageError(
                f"{folder} was trained with LoRA, whose optimiser state is that of adapters; set lora_rank as it was, "
                "or copy its model files to a new [model] path and begin a new store"
            )
        return open_model(folder, device, ranks, count=count, **how)
    if not has_adapters(folder) and folder.absolute() != base.absolute():
        check_first_weights(folder, base)
    adapters = read_adapters(folder, shape) if has_adapters(folder) else None
    model = open_model(base, device, ranks, count=count, adapters=adapters, lora=shape, seed=config.seed, **how)
    if adapters is not None and config.published_weights == "stepped" and ranks.rank == 0:
        check_base(folder, base, _adapted_layer(adapters, base, count), shape, model.compute)
    return model


def _adapted_layer(adapters: dict[str, torch.Tensor], base: Path, count: BytesRead) -> dict[str, torch.Tensor]:
    """The adapters of one layer, and its frozen weights."""
    first = next(name for name in adapters if ".lora_A." in name)
    layer = first.partition(".lora_A.")[0]
    stored = StoredTensors(base, count)
    name = f"{layer.removeprefix('network.')}.weight"
    shape = stored.shape(name)
    frozen = read_rows(name, shape, (0, shape[0]), stored)
    return {n: w for n, w in adapters.items() if n.startswith(layer + ".")} | {f"{layer}.base_layer.weight": frozen}
