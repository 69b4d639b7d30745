"""Conversations of training data, rendered as the proxy renders those of agents.

Invariant: a later turn continues the exact ids of the turns before it wherever the proxy's would, by the family's
renderer or by the model's own chat template, and is rendered afresh where the proxy's would be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weir.proxy.rendering.renderer import Rendering


@dataclass(frozen=True, slots=True)
class Ids:
    """The outcome of a rendering."""

    token_ids: list[int]


class ProxyRenderer:
    """A `ChatRenderer` of the trainer over the proxy's rendering of a model folder."""

    def __init__(self, rendering: Rendering) -> None:
        self._rendering = rendering

    def render(self, messages: Sequence[Any], *, tools: Any = None, add_generation_prompt: bool = False) -> Ids:
        """The ids of a conversation, ready for the model to answer with `add_generation_prompt`."""
        self._rendering.refuse_dropped(messages, tools)
        return Ids(self._rendering.ids(messages, tools, opens_answer=add_generation_prompt))

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: list[int],
        previous_completion_ids: list[int],
        new_messages: Any,
        *,
        tools: Any = None,
    ) -> Ids | None:
        """The previous prompt and answer, and what follows them; None where that cannot be proven."""
        added = self._rendering.extension(previous_prompt_ids, previous_completion_ids, new_messages, tools)
        return None if added is None else Ids([*previous_prompt_ids, *previous_completion_ids, *added])

    def get_stop_token_ids(self) -> list[int]:
        """The ids that end an answer."""
        return list(self._rendering.stop_ids)
