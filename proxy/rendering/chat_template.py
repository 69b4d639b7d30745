"""A model's own chat template: messages in the form that it takes, and what it writes of them.

Templates agree on messages with a role and a content, and on little else: whether the arguments of a call are an object
or text, whether a call's message has a content, how long a call's id is. The form is found once, by rendering a call in
each. Invariant: only the form differs; a message says the same to the model in each of them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import xxhash

from weir.proxy.conversation.call_request import Message, Tool
from weir.proxy.rendering.families import PROBE_ARGUMENT
from weir.proxy.rendering.tokenizer import ModelTokenizer

_ID_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ID_LENGTH = 9  # of the ids that Mistral's templates take
_CALLED, _NAMED, _VALUE = "probe_weir_f", PROBE_ARGUMENT, "probe-weir-value"
QUESTION: Message = {"role": "user", "content": "One?"}
PROBE_TOOL: Tool = {
    "type": "function",
    "function": {
        "name": _CALLED,
        "description": "Probes.",
        "parameters": {"type": "object", "properties": {_NAMED: {"type": "string"}}, "required": [_NAMED]},
    },
}
PROBE_CALL: Message = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "id": "call_weir_probe_0",
            "type": "function",
            "function": {"name": _CALLED, "arguments": json.dumps({_NAMED: _VALUE})},
        }
    ],
}
PROBE_RESULT: Message = {
    "role": "tool",
    "tool_call_id": "call_weir_probe_0",
    "name": _CALLED,
    "content": "probe-weir-result",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageForm:
    """The form in which a template takes calls of tools."""

    arguments_are_text: bool = False  # otherwise they are the object that their JSON means
    has_no_content: bool = False  # a message with calls and no text has no content, rather than an empty one
    has_short_ids: bool = False  # ids have nine letters and digits, made from the given ones

    def of(self, messages: Sequence[Message]) -> list[Message]:
        """Messages in this form; those without calls and ids are the given ones."""
        return [self._of(message) for message in messages]

    def _of(self, message: Message) -> Message:
        calls = message.get("tool_calls")
        if calls:
            changed = {**message, "tool_calls": [self._call(call) for call in calls]}
            if self.has_no_content and not message.get("content"):
                changed["content"] = None
            return changed
        if self.has_short_ids and message.get("tool_call_id") is not None:
            return {**message, "tool_call_id": _short_id(message["tool_call_id"])}
        return message

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        function = call["function"]
        if not self.arguments_are_text:
            function = {**function, "arguments": _value(function["arguments"])}
        changed = {**call, "function": function}
        if self.has_short_ids:
            changed["id"] = _short_id(call["id"])
        return changed


class ChatTemplate:
    """The chat template of a model folder. `form` is None where it writes calls of tools in no form."""

    def __init__(self, tokenizer: ModelTokenizer, variables: Mapping[str, Any]) -> None:
        """`variables` are those of the template that the proxy's settings set."""
        self._tokenizer = tokenizer
        self._variables = dict(variables)
        self.form = next((form for form in _forms() if self._keeps_calls(form)), None)
        self._form = self.form or MessageForm()

    def text(self, messages: Sequence[Message], tools: list[Tool] | None, *, opens_answer: bool = True) -> str:
        """What it writes. Raises any exception for messages that it does not take."""
        written: str = self._tokenizer.apply_chat_template(
            self._form.of(messages),
            tools=tools,
            add_generation_prompt=opens_answer,
            tokenize=False,
            **self._variables,
        )
        return written

    def try_text(self, messages: Sequence[Message], tools: list[Tool] | None, **options: bool) -> str | None:
        """What it writes; None for messages that it does not take."""
        try:
            return self.text(messages, tools, **options)
        except Exception:  # templates raise any exception
            return None

    def written_call(self) -> str:
        """A probed call as it writes it, with what follows; empty where it writes none."""
        messages = [QUESTION, PROBE_CALL]
        whole = self.try_text(messages, [PROBE_TOOL], opens_answer=False) if self.form is not None else None
        before = self.try_text(messages[:1], [PROBE_TOOL], opens_answer=False)
        if whole is None or before is None:
            return ""
        return whole[len(before) :] if whole.startswith(before) else whole

    def _keeps_calls(self, form: MessageForm) -> bool:
        self._form = form
        text = self.try_text([QUESTION, PROBE_CALL, PROBE_RESULT], None)
        # In single quotes it is no JSON, but how Python shows an object.
        return (
            text is not None and all(part in text for part in (_CALLED, _NAMED, _VALUE)) and f"'{_NAMED}'" not in text
        )


def _forms() -> list[MessageForm]:
    """Every form, the usual one first."""
    return [
        MessageForm(arguments_are_text=text, has_no_content=none, has_short_ids=short)
        for short, none, text in itertools.product((False, True), repeat=3)
    ]


def _value(arguments: Any) -> Any:
    """Arguments as a value; text that is no JSON stays text."""
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


def _short_id(identifier: str) -> str:
    if len(identifier) == _ID_LENGTH and identifier.isascii() and identifier.isalnum():
        return identifier
    number = xxhash.xxh3_64_intdigest(identifier.encode())
    letters = []
    for _ in range(_ID_LENGTH):
        number, place = divmod(number, len(_ID_LETTERS))
        letters.append(_ID_LETTERS[place])
    return "".join(letters)
