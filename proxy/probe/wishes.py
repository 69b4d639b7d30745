"""Which wishes of agents an upstream that renders prompts itself does not fulfil, found by the prompts that it made.

Such wishes (an effort, a switch of thinking) act through the prompt. Invariant: one is called ignored only where the
upstream answered under every value that was tried, and its prompt was the same each time, token for token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from weir.proxy.dialects.wishes import NO_EFFORT, SWITCHES

TEMPLATE_VARIABLES = "chat_template_kwargs"
_EFFORTS = (NO_EFFORT, "low", "high")
_WORDS: Mapping[str, Sequence[Any]] = {"reasoning_effort": _EFFORTS, "verbosity": ("low", "high")}
_TRIED: Mapping[str, Sequence[Any]] = {**_WORDS, **dict.fromkeys(SWITCHES, (True, False))}
# Each wish by its path in a chat body, with the fields that express it.
_WISHES: Mapping[str, Sequence[dict[str, Any]]] = {
    **{name: [{name: value} for value in values] for name, values in _WORDS.items()},
    **{
        f"{TEMPLATE_VARIABLES}.{name}": [{TEMPLATE_VARIABLES: {name: value}} for value in values]
        for name, values in _TRIED.items()
    },
}

Prompted = Callable[[Mapping[str, Any]], Awaitable[Sequence[int] | None]]


async def ignored_wishes(prompted: Prompted) -> frozenset[str]:
    """The paths of the wishes that change no prompt; `prompted` makes a chat call with fields and returns its prompt.

    It returns None where the call is refused; such values say nothing, because the agent gets the refusal.
    """
    plain = await prompted({})
    if plain is None:
        return frozenset()
    ignored = await asyncio.gather(*(_is_ignored(prompted, plain, values) for values in _WISHES.values()))
    return frozenset(path for path, is_so in zip(_WISHES, ignored, strict=True) if is_so)


async def _is_ignored(prompted: Prompted, plain: Sequence[int], values: Sequence[Mapping[str, Any]]) -> bool:
    prompts = [prompt for value in values if (prompt := await prompted(value)) is not None]
    return bool(prompts) and all(list(prompt) == list(plain) for prompt in prompts)
