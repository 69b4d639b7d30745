"""What a chat template puts behind an answer: how exact ids continue where no renderer is known for a model.

The template renders the new messages behind a made-up answer; the text that follows that answer follows the real one
too. Invariant: the ids of the answer itself are never touched, and nothing is given where the template's text behind an
answer depends on what came before it, or cannot be told apart from it: then the caller has to render in full.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from weir.proxy.conversation.call_request import Message, Tool
from weir.proxy.rendering.tokenizer import ModelTokenizer

_ANSWER = "weir-8c1f-answer"  # found again in the rendered text
_QUESTION: Message = {"role": "user", "content": "One?"}
_HISTORIES: tuple[list[Message], ...] = (
    [_QUESTION],
    [_QUESTION, {"role": "assistant", "content": "One."}, {"role": "user", "content": "Two?"}],
)

logger = logging.getLogger("weir.proxy.rendering.template_turns")


class TemplateTurns:
    """The turns of a model's own chat template."""

    def __init__(self, tokenizer: ModelTokenizer, stop_ids: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._stop_ids = stop_ids

    def extension(
        self, exact: Sequence[int], new_messages: Sequence[Message], tools: list[Tool] | None
    ) -> list[int] | None:
        """The ids that follow a prompt and its output: the end of its turn where it has none, and the new messages.

        None where that cannot be proven.
        """
        text = self._behind_an_answer(new_messages, tools)
        if text is None:
            return None
        end = exact[-1] if exact and exact[-1] in self._stop_ids else None
        written = self._tokenizer.decode([end]) if end is not None else ""
        if end is None or not written or not text.startswith(written):
            return self._tokenizer.encode(text)
        ids = self._tokenizer.encode(text)  # with the token that the model wrote: no tokenizer puts a space before it
        return ids[1:] if ids[0] == end else None

    def _behind_an_answer(self, new_messages: Sequence[Message], tools: list[Tool] | None) -> str | None:
        """What the template writes behind an answer; None where it depends on the history."""
        texts = {self._behind(history, new_messages, tools) for history in _HISTORIES}
        return texts.pop() if len(texts) == 1 else None

    def _behind(
        self, history: Sequence[Message], new_messages: Sequence[Message], tools: list[Tool] | None
    ) -> str | None:
        messages = [*history, {"role": "assistant", "content": _ANSWER}, *new_messages]
        try:
            text: str = self._tokenizer.apply_chat_template(
                messages, tools=tools, add_generation_prompt=True, tokenize=False
            )
        except Exception as error:  # templates raise any exception
            logger.debug("the chat template does not take the made-up turn: %s", error)
            return None
        _, found, behind = text.partition(_ANSWER)
        return behind if found and _ANSWER not in behind else None
