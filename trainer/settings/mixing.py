"""Settings of the supervised loss in rounds. This module imports no torch."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class MixingConfig(BaseModel):
    """A supervised loss added to the policy loss: its data and coefficient."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    sft_files: list[str] = Field(
        default=[],
        description="JSON Lines of conversations and texts for a supervised loss in every optimiser step "
        '(`{"messages": […]}` or `{"text": "…"}`).',
    )
    sft_coef: float = Field(
        default=0.0,
        ge=0,
        description="Coefficient of the mean cross-entropy of sft_files in the loss.",
    )
    sft_tokens: int = Field(
        default=2048,
        ge=2,
        description="Target tokens of sft_files in a step, on average; longer conversations are dropped, texts cut.",
    )
    sft_seed: int = Field(default=0, ge=0, lt=2**62, description="Seed of the order of sft_files.")

    @model_validator(mode="after")
    def _mixing_makes_sense(self) -> Self:
        if bool(self.sft_files) != (self.sft_coef > 0):
            raise ValueError(f"sft_files = {self.sft_files} and sft_coef = {self.sft_coef:g}: set both, or neither")
        if len(set(self.sft_files)) < len(self.sft_files):
            raise ValueError(f"sft_files = {self.sft_files} names a file twice: raise sft_coef to have it count more")
        return self
