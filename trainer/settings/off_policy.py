"""Settings for samples that were not drawn from the trained policy's own distribution: [trainer.off_policy]."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Treatment = Literal["correct", "skip"]


class OffPolicyConfig(BaseModel):
    """Calls with greedy, truncated, penalised or constrained sampling: trained on with importance weights, or left out.

    The weight of a token is w = p_policy / p_behaviour under the weights that the round starts from, bounded.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    truncated: Treatment = Field(
        default="correct",
        description="Calls with top_p, top_k, min_p, penalties, a bias or a grammar. correct: each token's loss is "
        "multiplied by its bounded importance weight; skip: left out, counted as truncated_sampling.",
    )
    greedy: Treatment = Field(
        default="correct",
        description="Calls with temperature 0 or top_k = 1, whose behaviour has probability 1 on each token. correct: "
        "as above, so w is the policy's own probability at temperature 1; skip: left out, counted as greedy.",
    )
    low: float = Field(default=0.0, ge=0, description="Lower bound of w; smaller weights count as this.")
    high: float = Field(default=2.0, gt=0, description="Upper bound of w; larger weights count as this.")

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low = {self.low} is not below high = {self.high}")
        return self
