"""Settings of the supervised loss that rounds mix in. Nothing here imports torch."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class MixingConfig(BaseModel):
    """A supervised loss beside the policy's: what is learnt by imitation, and how much it counts."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    sft_files: list[str] = Field(
        default=[],
        description="JSON Lines whose conversations and texts are learnt besides, in every optimiser step "
        '(`{"messages": […]}` or `{"text": "…"}`).',
    )
    sft_coef: float = Field(
        default=0.0,
        ge=0,
        description="What their mean cross-entropy is multiplied by before it is added to the loss.",
    )
    sft_tokens: int = Field(
        default=2048,
        ge=2,
        description="Tokens of them that a step learns, on average; longer conversations are left out, texts cut.",
    )
    sft_seed: int = Field(default=0, ge=0, lt=2**62, description="Seed of their order.")

    @model_validator(mode="after")
    def _mixing_makes_sense(self) -> Self:
        if bool(self.sft_files) != (self.sft_coef > 0):
            raise ValueError(f"sft_files = {self.sft_files} and sft_coef = {self.sft_coef:g}: set both, or neither")
        if len(set(self.sft_files)) < len(self.sft_files):
            raise ValueError(f"sft_files = {self.sft_files} names a file twice: raise sft_coef to have it count more")
        return self
