"""Settings of LoRA, of rounds and of the cold start. This module imports no torch."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

LINEAR_LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class LoraSettings(BaseModel):
    """LoRA (arXiv 2106.09685): adapters are trained, the first weights stay frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    lora_rank: int | None = Field(
        default=None,
        ge=1,
        description="Train adapters of this rank beside the frozen first weights; unset: all weights.",
    )
    lora_alpha: float = Field(default=32.0, gt=0, description="Adapters count lora_alpha / lora_rank times.")
    lora_targets: list[str] = Field(
        default=LINEAR_LAYERS, min_length=1, description="Names of the linear layers that have adapters."
    )
