"""What a chat template puts behind an answer: how exact ids continue where no renderer is known for a model.

The template renders the new messages behind an answer of the same kind as the real one (text, or calls of the same
functions); what follows that answer follows the real one too. A few made-up conversations show it; where they
disagree, the real one decides. Invariants: the ids of the answer itself are never touched, and nothing is given where
the template changes what stood before the answer (tools or a system prompt that move to the latest question): then the
caller has to render in full. With `keeps_reasoning` False that includes earlier reasoning: the exact text must be the
beginning of what the template writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence

from weir.proxy.conversation.call_request import Message, Tool
from weir.proxy.rendering.chat_template import PROBE_CALL, PROBE_RESULT, PROBE_TOOL, QUESTION, ChatTemplate
from weir.proxy.rendering.tokenizer import ModelTokenizer

_KINDS = 256  # of turns, remembered
_MARK = "weir-8c1f-answer"  # found again in the rendered text
_SYSTEM: Message = {"role": "system", "content": "Be brief."}
_FURTHER: Message = {"role": "user", "content": "And two?"}
_TEXT: Message = {"role": "assistant", "content": "One."}
_HISTORIES: tuple[list[Message], ...] = (
    [_SYSTEM, QUESTION],
    [QUESTION, _TEXT, _FURTHER],
    [_SYSTEM, QUESTION, PROBE_CALL, PROBE_RESULT],
)


class TemplateTurns:
    """The turns of a model's own chat template."""

    def __init__(
        self,
        tokenizer: ModelTokenizer,
        template: ChatTemplate,
        stop_ids: Collection[int],
        *,
        keeps_reasoning: bool,
    ) -> None:
        """`stop_ids` are those at which the model's settings end an answer."""
        self._tokenizer = tokenizer
        self._template = template
        self.keeps_reasoning = keeps_reasoning
        made_up = _HISTORIES if template.form is not None else _HISTORIES[:-1]
        # What it refuses (a system prompt, for example) is refused before it comes here.
        self._histories = [history for history in made_up if template.try_text(history, None) is not None]
        self._independent: set[tuple[bool, bool, tuple[str, ...]]] = set()  # kinds of turns
        # The token behind a last answer, and behind an earlier one; None where only the next turn ends it.
        self.end_id = self._end_behind([])
        self._inner_end_id = self._end_behind([_FURTHER])
        self._stop_ids = frozenset(stop_ids if self.end_id is None else {*stop_ids, self.end_id})
        self._stop_texts = [tokenizer.decode([number]) for number in self._stop_ids]

    def extension(
        self,
        exact: Sequence[int],
        answer: Message,
        new_messages: Sequence[Message],
        tools: list[Tool] | None,
        earlier: Callable[[], list[Message]] | None,
    ) -> list[int] | None:
        """The ids that follow a prompt and its output: the end of its turn where it has none, and the new messages.

        `earlier` reads the messages before the answer, where they are known. None where nothing can be proven.
        """
        if not self.keeps_reasoning:
            return self._by_text(exact, [*earlier(), answer, *new_messages], tools) if earlier is not None else None
        behind = self._agreed(answer, new_messages, tools)
        if behind is None and earlier is not None:
            without_reasoning = [{k: v for k, v in m.items() if k != "reasoning_content"} for m in earlier()]
            behind = self._behind(without_reasoning, answer, new_messages, tools)
        return None if behind is None else self._ids(exact[-1] if len(exact) else None, behind)

    def inexact(self) -> list[str]:
        """The kinds of turns behind which exact ids do not continue, for people."""
        kinds: list[tuple[str, list[Message], Message, Message, list[Tool] | None]] = [
            ("a further question", [QUESTION], _TEXT, _FURTHER, None),
            ("a further question after a system prompt", [_SYSTEM, QUESTION], _TEXT, _FURTHER, None),
        ]
        if self._template.form is not None:
            tools = [PROBE_TOOL]
            kinds += [
                ("a tool's result", [QUESTION], PROBE_CALL, PROBE_RESULT, tools),
                ("a further question with tools", [QUESTION], _TEXT, _FURTHER, tools),
                ("a question after a result", [QUESTION, PROBE_CALL, PROBE_RESULT], _TEXT, _FURTHER, tools),
            ]
        return [
            name
            for name, history, answer, new, tools in kinds
            if self._template.try_text(history, tools) is not None
            and self._behind(history, answer, [new], tools) is None
        ]

    def _by_text(self, exact: Sequence[int], messages: list[Message], tools: list[Tool] | None) -> list[int] | None:
        """The rest of a full rendering whose text begins with the exact one."""
        whole = self._template.try_text(messages, tools)
        so_far = self._tokenizer.decode(list(exact))
        if whole is None or not so_far or not whole.startswith(so_far):
            return None
        end = exact[-1]
        if end not in self._tokenizer.added_ids:
            return self._tokenizer.encode(whole[len(so_far) :])
        ids = self._tokenizer.encode(self._tokenizer.decode([end]) + whole[len(so_far) :])
        return ids[1:] if ids[:1] == [end] else None

    def _agreed(self, answer: Message, new_messages: Sequence[Message], tools: list[Tool] | None) -> str | None:
        """What the template writes behind an answer; None where it depends on the conversation.

        Where it does not is found once for each kind of turn; later ones of the kind need one conversation.
        """
        kind = (bool(answer.get("tool_calls")), tools is None, tuple(message["role"] for message in new_messages))
        histories = self._histories[:1] if kind in self._independent else self._histories
        texts = {self._behind(history, answer, new_messages, tools) for history in histories}
        agreed = texts.pop() if len(texts) == 1 else None
        if agreed is not None and len(self._independent) < _KINDS:
            self._independent.add(kind)
        return agreed

    def _behind(
        self,
        history: Sequence[Message],
        answer: Message,
        new_messages: Sequence[Message],
        tools: list[Tool] | None,
    ) -> str | None:
        """The text behind an answer like this one, from the end of its turn on.

        None where the template does not take it, does not show it, or changes what stood before.
        """
        marked = _marked(answer)
        before = self._template.try_text(history, tools, opens_answer=False)
        whole = self._template.try_text([*history, marked, *new_messages], tools)
        if before is None or whole is None or not whole.startswith(before):
            return None
        _, found, behind = whole.partition(_MARK)
        if not found or _MARK in behind:
            return None
        if not answer.get("tool_calls"):
            return behind
        alone = self._template.try_text([*history, marked], tools, opens_answer=False)
        rest_of_call = self._up_to_end((alone or "").partition(_MARK)[2])
        return behind[len(rest_of_call) :] if alone is not None and behind.startswith(rest_of_call) else None

    def _up_to_end(self, text: str) -> str:
        """A text up to the last token that ends a turn; all of it where there is none."""
        place = max((text.rfind(end) for end in self._stop_texts), default=-1)
        return text if place < 0 else text[:place]

    def _ids(self, last: int | None, behind: str) -> list[int]:
        """The ids of a text behind an answer whose last id is `last`, which may have ended its turn already.

        The token that ended it is tokenised too and left out: behind it no tokenizer puts a space.
        """
        ids = self._tokenizer.encode(behind)
        place = next((i for i, number in enumerate(ids) if number in self._tokenizer.added_ids), None)
        if last not in self._stop_ids or place is None or self._tokenizer.decode(ids[:place]).strip():
            return ids
        # A model may end its turn by another token than the template writes there.
        stands_for_it = self.end_id is not None and (ids[place] == self._inner_end_id or ids[place] in self._stop_ids)
        return ids[place + 1 :] if ids[place] == last or stands_for_it else ids

    def _end_behind(self, new_messages: list[Message]) -> int | None:
        """The first token of markup that the template writes behind an answer."""
        for history in self._histories:
            text = self._template.try_text(
                [*history, _marked({}), *new_messages], None, opens_answer=bool(new_messages)
            )
            ids = self._tokenizer.encode((text or "").partition(_MARK)[2])
            return next((number for number in ids if number in self._tokenizer.added_ids), None)
        return None


def _marked(answer: Message) -> Message:
    """An answer of the same kind whose last words are the mark."""
    calls = answer.get("tool_calls")
    if not calls:
        return {"role": "assistant", "content": _MARK}
    last = calls[-1]
    function = {**last["function"], "arguments": json.dumps({"weir": _MARK})}
    content = "Well." if answer.get("content") else ""
    return {"role": "assistant", "content": content, "tool_calls": [*calls[:-1], {**last, "function": function}]}
