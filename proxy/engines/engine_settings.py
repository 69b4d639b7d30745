"""The settings of the engines that can change a logprob, as their /server_info names them, for the records of calls.

A router does not say which engine took a call. Invariants: what is recorded is what the engines behind it said when
they were asked last, before the call began, one entry where all have the same settings, else one for each that differs,
and nothing until all have answered; only the calls before the first answer wait for one, and for one question only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from weir.proxy.engines.learned import Learned

SETTINGS = (  # SGLang's names
    "version",
    "device",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "attention_backend",
    "sampling_backend",
    "tp_size",
    "dp_size",
    "ep_size",
    "enable_dp_attention",
    "moe_a2a_backend",
    "enable_hierarchical_cache",
    "disable_radix_cache",
    "speculative_algorithm",
    "speculative_num_steps",
    "speculative_num_draft_tokens",
    "enable_deterministic_inference",
)

_encode = msgspec.json.Encoder(order="sorted").encode


def settings_of(info: Mapping[str, Any]) -> dict[str, Any]:
    """Those of an engine's settings that it names and that are switched on."""
    return {name: info[name] for name in SETTINGS if info.get(name) not in (None, False, "")}


class EngineSettings:
    """The settings of one router's engines."""

    def __init__(self, ask: Callable[[], Awaitable[Sequence[Mapping[str, Any]] | None]]) -> None:
        """`ask` returns what each engine says of itself; None unless all answered."""
        self._ask = ask
        self._learned = Learned(self._differing)
        self._was_asked = False

    @property
    def json(self) -> str:
        """A list of objects, as records keep it; "" where nothing is known."""
        return self._learned.value or ""

    async def learn(self) -> None:
        """Bring `json` up to date."""
        await self._learned.learn(waits=not self._was_asked)
        self._was_asked = True

    async def close(self) -> None:
        """Stop asking. May be called twice."""
        await self._learned.close()

    async def _differing(self) -> str | None:
        infos = await self._ask()
        if infos is None:
            return None
        differing = sorted({_encode(settings) for info in infos if (settings := settings_of(info))})
        return f"[{b','.join(differing).decode()}]" if differing else ""
