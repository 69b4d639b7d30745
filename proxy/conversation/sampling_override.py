"""Replaces the sampling that an agent asked for, before an engine sees it, and says what was asked. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from weir.proxy.conversation.call_request import Sampling
from weir.proxy.sampling_config import SamplingOverride

_OWN_FIELDS = ("temperature", "top_p", "top_k", "seed")  # the others are in `Sampling.extra`
_NEUTRAL = Sampling()


def overridden(sampling: Sampling, override: SamplingOverride) -> tuple[Sampling, dict[str, Any]]:
    """The sampling that the engine gets, and the fields that it changed: name → what the agent asked for.

    A field that the agent left out counts as its neutral value; one that it asked for like that is not in the second.
    """
    values = override.set.values() | dict.fromkeys(override.drop)
    own = {name: _neutral(name) if value is None else value for name, value in values.items() if name in _OWN_FIELDS}
    extra = sampling.extra | {name: value for name, value in values.items() if name not in _OWN_FIELDS}
    extra = {name: value for name, value in extra.items() if value is not None}
    used = msgspec.structs.replace(sampling, **own, extra=extra)
    asked = {name: _value(sampling, name) for name in values if _value(used, name) != _value(sampling, name)}
    return used, asked


def _value(sampling: Sampling, name: str) -> Any:
    return getattr(sampling, name) if name in _OWN_FIELDS else sampling.extra.get(name)


def _neutral(name: str) -> Any:
    return getattr(_NEUTRAL, name)
