"""What a call's reward is made of: a weighted sum of named rewards, each bounded as the settings say.

Invariant: pure; a call without one of the named rewards, or with one that is not a finite number (or is beyond
`LARGEST`), has no reward at all, and never a part of one. Not here: where rewards come from (`kernel_rewards.py`,
`http_rewards.py`, `function_rewards.py`, `stored_rewards.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Source = Literal["kernel_eval", "http", "function", "stored"]
KERNEL_EVAL = "kernel_eval"
LARGEST = 1e30  # of a reward: sums and squares of such stay finite
WHERE = ("url", "key", "batch_size")  # settings that may differ between two attempts at the same round


class RewardTerm(BaseModel):
    """One named reward: kernel evaluation's where it says nothing else."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    weight: float = Field(default=1.0, description="What it is multiplied by in the sum.")
    low: float | None = Field(default=None, description="A smaller one counts as this.")
    high: float | None = Field(default=None, description="A larger one counts as this.")
    url: str | None = Field(default=None, description="Reward model that is asked by HTTP.")
    key: str | None = Field(default=None, description="Its API key, where it wants one.")
    batch_size: int = Field(default=16, ge=1, description="Answers in one request to it.")
    function: str | None = Field(default=None, description='Import path "pkg.mod:name" of a function of an Answer.')
    stored: bool = Field(default=False, description="It is in the store already, under this name.")

    @property
    def source(self) -> Source:
        """Who gives this reward."""
        if self.url is not None:
            return "http"
        if self.function is not None:
            return "function"
        return "stored" if self.stored else "kernel_eval"

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if (self.url is not None) + (self.function is not None) + self.stored > 1:
            raise ValueError("a reward comes from one place: give url, function or stored = true, or none of them")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(f"low = {self.low} is not below high = {self.high}")
        return self

    def bounded(self, value: float) -> float:
        """A value as it counts, unweighted."""
        if self.low is not None:
            value = max(value, self.low)
        return value if self.high is None else min(value, self.high)

    def is_held(self, value: float) -> bool:
        """Whether a value can be trained on: neither it nor what counts of it is beyond all bounds."""
        counted = (value, self.weight * value, self.weight * self.bounded(value))
        return all(abs(number) <= LARGEST for number in counted)  # which no NaN is

    def pinned(self) -> dict[str, Any]:
        """What a reward depends on, as JSON values; never a key."""
        return self.model_dump(mode="json", exclude={"key", "batch_size"})


Terms = Mapping[str, RewardTerm]


def check_names(terms: Terms) -> None:
    """Raise `ValueError` where the name of a reward and its source contradict each other."""
    for name, term in terms.items():
        if (name == KERNEL_EVAL) != (term.source == "kernel_eval"):
            raise ValueError(
                f"the reward {name} comes from {term.source}: {KERNEL_EVAL} is the name of kernel evaluation's own, "
                "every other one says where it comes from by url, function or stored = true"
            )


def is_complete(values: Mapping[str, float], terms: Terms) -> bool:
    """Whether a call has all its rewards, each a number that can be trained on, bounded and weighted too."""
    return all(name in values and term.is_held(values[name]) for name, term in terms.items())


def raw_reward(values: Mapping[str, float], terms: Terms) -> float:
    """The weighted sum of the rewards as they were given."""
    return math.fsum(term.weight * values[name] for name, term in terms.items())


def shaped_reward(values: Mapping[str, float], terms: Terms) -> float:
    """The weighted sum of the bounded rewards."""
    return math.fsum(term.weight * term.bounded(values[name]) for name, term in terms.items())
