"""A call's reward: a weighted sum of named rewards, each clipped to its bounds.

Invariant: pure; a call that lacks one of the named rewards, or has one that is not finite or beyond `LARGEST` in
magnitude, has no reward at all, and never a partial sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Source = Literal["kernel_eval", "http", "function", "stored"]
KERNEL_EVAL = "kernel_eval"
LARGEST = 1e30  # magnitude of a reward; sums and squares of such rewards stay finite
WHERE = ("url", "key", "batch_size")  # settings that may differ between two attempts at the same round


class RewardTerm(BaseModel):
    """One named reward; without another source, it is kernel evaluation's."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    weight: float = Field(default=1.0, description="Coefficient of the reward in the sum.")
    low: float | None = Field(default=None, description="Lower bound; a smaller reward counts as this.")
    high: float | None = Field(default=None, description="Upper bound; a larger reward counts as this.")
    url: str | None = Field(default=None, description="URL of a reward model.")
    key: str | None = Field(default=None, description="API key of the reward model, if it needs one.")
    batch_size: int = Field(default=16, ge=1, description="Answers in one request to the reward model.")
    function: str | None = Field(
        default=None, description='Import path "pkg.mod:name" of a reward function of an Answer.'
    )
    stored: bool = Field(default=False, description="The reward is in the store before the round, under this name.")
    performance: bool = Field(
        default=False,
        description="kernel_eval: have the judge time correct answers, so that speed is rewarded; it needs a GPU.",
    )
    performance_trials: int = Field(
        default=100, ge=1, le=10_000, description="kernel_eval: timed samples of one answer, at most."
    )

    @property
    def source(self) -> Source:
        """The source of this reward."""
        if self.url is not None:
            return "http"
        if self.function is not None:
            return "function"
        return "stored" if self.stored else "kernel_eval"

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if (self.url is not None) + (self.function is not None) + self.stored > 1:
            raise ValueError("a reward comes from one place: give url, function or stored = true, or none of them")
        if self.source != "kernel_eval" and (self.performance or self.performance_trials != 100):
            raise ValueError(f"performance asks the judge to time answers, and this reward comes from {self.source}")
        if not self.performance and self.performance_trials != 100:
            raise ValueError("performance_trials has no effect without performance = true")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(f"low = {self.low} is not below high = {self.high}")
        return self

    def bounded(self, value: float) -> float:
        """A value clipped to the bounds, unweighted."""
        if self.low is not None:
            value = max(value, self.low)
        return value if self.high is None else min(value, self.high)

    def is_trainable(self, value: float) -> bool:
        """Whether a value, weighted and bounded too, is finite and at most `LARGEST` in magnitude."""
        counted = (value, self.weight * value, self.weight * self.bounded(value))
        return all(abs(number) <= LARGEST for number in counted)  # false for NaN

    def pinned(self) -> dict[str, Any]:
        """The settings that a reward depends on, as JSON values, without the key."""
        return self.model_dump(mode="json", exclude={"key", "batch_size"})


Terms = Mapping[str, RewardTerm]


def check_names(terms: Terms) -> None:
    """Raise `ValueError` where the name of a reward and its source contradict each other."""
    for name, term in terms.items():
        if (name == KERNEL_EVAL) != (term.source == "kernel_eval"):
            raise ValueError(
                f"the reward {name} comes from {term.source}: {KERNEL_EVAL} is the name of kernel evaluation's own, "
                "every other one needs a url, a function or stored = true"
            )


def is_complete(values: Mapping[str, float], terms: Terms) -> bool:
    """Whether a call has all its rewards, each of them trainable."""
    return all(name in values and term.is_trainable(values[name]) for name, term in terms.items())


def raw_reward(values: Mapping[str, float], terms: Terms) -> float:
    """The weighted sum of the rewards, without bounds."""
    return math.fsum(term.weight * values[name] for name, term in terms.items())


def shaped_reward(values: Mapping[str, float], terms: Terms) -> float:
    """The weighted sum of the bounded rewards."""
    return math.fsum(term.weight * term.bounded(values[name]) for name, term in terms.items())
