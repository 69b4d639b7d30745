"""Sampling that the proxy imposes on agents' calls: section [proxy.sampling] of weir.toml."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

SamplingField = Literal[
    "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "seed"
]


class SampledWith(BaseModel):
    """Values that the engine gets instead of the agent's; the limits are those of the agents' own fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, le=2**31 - 1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: float | None = Field(default=None, ge=0.01, le=2)
    seed: int | None = Field(default=None, ge=-(2**63), le=2**63 - 1)

    def values(self) -> dict[str, Any]:
        """The fields that are set."""
        return self.model_dump(exclude_none=True)


class SamplingOverride(BaseModel):
    """What replaces the sampling that agents ask for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    set: SampledWith = Field(
        default=SampledWith(),
        description="Values that the engine gets, whether the agent asked for others or for none: temperature, top_p, "
        "top_k, min_p, frequency_penalty, presence_penalty, repetition_penalty, seed.",
    )
    drop: tuple[SamplingField, ...] = Field(
        default=(), description="Fields of the same names that the engine does not get from the agent."
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        both = sorted(name for name in self.set.values() if name in self.drop)
        if both:
            raise ValueError(f"{', '.join(both)} cannot be both set and dropped: remove it from one of them")
        return self

    def __bool__(self) -> bool:
        return bool(self.set.values() or self.drop)


class SamplingRule(SamplingOverride):
    """An override for some calls. Patterns are shell patterns, such as `eval-*`; one that is unset matches all."""

    session: str | None = Field(default=None, description="Pattern of session ids.")
    group: str | None = Field(default=None, description="Pattern of group ids.")
    key: str | None = Field(default=None, description="Pattern of the names of access keys (`weir key add NAME`).")

    def matches(self, *, session_id: str, group_id: str, access_key: str | None) -> bool:
        """Whether it applies to a call; a call without an access key matches no pattern of keys."""
        pairs = ((self.session, session_id), (self.group, group_id), (self.key, access_key))
        return all(pattern is None or (name is not None and fnmatchcase(name, pattern)) for pattern, name in pairs)


class SamplingConfig(SamplingOverride):
    """Sampling that replaces what agents ask for; what they asked for is recorded beside it.

    A rule overrides calls of some sessions, groups or access keys, the first that matches; `set` and `drop` of the
    section itself are for all other calls.
    """

    rules: tuple[SamplingRule, ...] = Field(
        default=(),
        description="Tables `[[proxy.sampling.rules]]` with session, group and key (patterns such as `eval-*`; unset: "
        "all), set and drop.",
    )

    def override(self, *, session_id: str, group_id: str, access_key: str | None) -> SamplingOverride:
        """The override of a call; it changes nothing where none applies."""
        for rule in self.rules:
            if rule.matches(session_id=session_id, group_id=group_id, access_key=access_key):
                return rule
        return self

    def __bool__(self) -> bool:
        return bool(self.rules) or super().__bool__()
