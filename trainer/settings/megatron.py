"""How processes divide a model that Megatron-core computes. This module imports no torch."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class MegatronSettings(BaseModel):
    """A layout, and how it computes; processes that remain after tensor × pipeline × context are data parallel."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tensor: int = Field(default=1, ge=1, description="Processes that share each layer's matrices (TP).")
    sequence: bool = Field(
        default=True, description="With tensor above 1, also divide activations between matrices by tokens (SP)."
    )
    pipeline: int = Field(default=1, ge=1, description="Stages of consecutive layers (PP).")
    chunks: int = Field(
        default=1,
        ge=1,
        description="Chunks of layers of each stage, which take turns: less waiting, more messages (interleaved PP).",
    )
    context: int = Field(default=1, ge=1, description="Processes that share the tokens of each sequence (CP).")
    expert: int = Field(default=1, ge=1, description="Processes that share the experts of a layer (EP).")
    expert_tensor: int = Field(default=1, ge=1, description="Processes that share the matrices of an expert (ETP).")
    fused_activations: bool = Field(
        default=False,
        description="Compute the activation of feed-forward blocks and experts as one kernel, which torch compiles at "
        "the first step, and keep only its input for the backward pass.",
    )

    optimizer_offload_fraction: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Share of a rank's float32 weights and moments that lie in CPU memory, where AdamW steps them "
        "(Megatron-core's hybrid optimiser).",
    )

    fp8: Literal["tensorwise", "delayed", "blockwise", "mxfp8"] | None = Field(
        default=None,
        description="Multiply by the matrices of layers in FP8, scaled by this recipe of Transformer Engine, which has "
        "to be installed; unset: in the precision of the weights.",
    )

    @property
    def sizes(self) -> dict[str, Any]:
        """How processes divide the model, without how they compute it."""
        return self.model_dump(exclude={"fused_activations", "optimizer_offload_fraction", "fp8"})

    @property
    def token_multiple(self) -> int:
        """What the tokens of a row on each rank are a multiple of, so that their matrices can be multiplied."""
        if self.fp8 is None:
            return 1
        return 32 if self.fp8 == "mxfp8" else 16
