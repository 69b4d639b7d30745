"""The bodies of control routes for sessions and rewards. Invariant: any database can store an accepted body."""

from __future__ import annotations

import json
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

MAX_GROUP_SIZE = 2**31 - 1  # what an INTEGER of PostgreSQL holds
MAX_COUNT = 2**53  # what every JSON reader keeps exactly
MAX_SECONDS = 1e9
MAX_REWARDS = 1000


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="after")
    def _is_storable(self) -> Self:
        """Refuse values that only Python's JSON parser accepts: NaN and lone surrogates. Raises ValueError."""
        try:
            json.dumps(self.model_dump(), allow_nan=False, ensure_ascii=False).encode()
        except ValueError as error:
            raise ValueError(f"this is not JSON that can be stored: {error}") from error
        return self


class NewBudget(_Body):
    """The limits of a session; an absent one is unlimited."""

    max_calls: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    max_output_tokens: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    max_seconds: float | None = Field(default=None, gt=0, le=MAX_SECONDS)


class NewSession(_Body):
    """POST /weir/sessions."""

    session: str | None = None
    group: str | None = None
    task: dict[str, Any] | None = None
    group_size: int | None = Field(default=None, ge=1, le=MAX_GROUP_SIZE)
    metadata: dict[str, Any] = {}
    tags: list[Literal["serve"]] = []
    budget: NewBudget = NewBudget()


class FinishSession(_Body):
    """POST /weir/sessions/{id}/finish."""

    status: Literal["done", "failed", "aborted"] = "done"  # aborted: its group is never trained on
    info: dict[str, Any] = {}


class NewReward(_Body):
    """POST /weir/rewards."""

    session: str
    call: str | None = None
    name: str = Field(min_length=1)
    value: float = Field(allow_inf_nan=False)
    source: str = Field(min_length=1)
    idempotency_key: str = Field(min_length=1)


class NewRewards(_Body):
    """POST /weir/rewards/batch: all of them are attached, or none."""

    rewards: list[NewReward] = Field(min_length=1, max_length=MAX_REWARDS)
