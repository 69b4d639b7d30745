"""Tool calls in forms that chat templates write and the `renderers` library reads for its own families only.

Llama's: an answer that is one JSON object with a name and parameters. Mistral's: a token, then a list of calls in JSON,
or a name and arguments behind each such token. gpt-oss: harmony, whose parts name their channel and recipient. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from renderers import ParsedResponse, ParsedToolCall, ToolCallParseStatus
from renderers.parsing import parse_gpt_oss

from weir.proxy.rendering.tokenizer import ModelTokenizer

LLAMA, MISTRAL, HARMONY = "llama", "mistral", "harmony"
_CALLS, _ARGS, _IDENTIFIER, _PYTHON = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>"
_HARMONY = {
    "return_id": "<|return|>",
    "call_id": "<|call|>",
    "start_id": "<|start|>",
    "end_id": "<|end|>",
    "channel_id": "<|channel|>",
    "message_id": "<|message|>",
    "constrain_id": "<|constrain|>",
}


class LlamaCalls:
    """Reads an answer that is a JSON object with a name and parameters."""

    def __init__(self, tokenizer: ModelTokenizer) -> None:
        self._tokenizer = tokenizer

    def extract(self, ids: list[int]) -> tuple[list[int], list[ParsedToolCall]]:
        """The ids of the content, and the calls; all is content where the answer is no call."""
        text = self._tokenizer.decode(ids).strip().removeprefix(_PYTHON).strip()
        call = _object(text)
        if call is None or "name" not in call:
            return ids, []
        arguments = call.get("parameters", call.get("arguments", {}))
        return [], [_call(text, call["name"], arguments, (0, len(ids)))]


class MistralCalls:
    """Reads what stands behind the token of calls."""

    def __init__(self, tokenizer: ModelTokenizer) -> None:
        self._tokenizer = tokenizer
        self._mark = tokenizer.backend.token_to_id(_CALLS)

    def extract(self, ids: list[int]) -> tuple[list[int], list[ParsedToolCall]]:
        """The ids of the content, and the calls behind it, those that cannot be read too."""
        if self._mark not in ids:
            return ids, []
        start, calls = ids.index(self._mark), []
        places = [place for place in range(start, len(ids)) if ids[place] == self._mark]
        for place, end in zip(places, [*places[1:], len(ids)], strict=True):
            calls += self._block(ids[place + 1 : end], (place, end))
        return ids[:start], calls

    def _block(self, ids: list[int], span: tuple[int, int]) -> list[ParsedToolCall]:
        text = self._tokenizer.decode(ids).strip()
        name, has_name, arguments = text.partition(_ARGS)
        if has_name:
            value = _value(arguments)
            return [_call(text, name.partition(_IDENTIFIER)[0].strip(), value, span)]
        listed = _value(text)
        if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
            return [ParsedToolCall(raw=text, token_span=span, status=ToolCallParseStatus.INVALID_JSON)]
        return [_call(text, one.get("name"), one.get("arguments", {}), span) for one in listed]


class Harmony:
    """Reads answers in harmony: thoughts, calls and content in parts of their own."""

    def __init__(self, tokenizer: ModelTokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids = {name: tokenizer.backend.token_to_id(text) for name, text in _HARMONY.items()}
        # The prompt opens the first part of an answer.
        self._opening = [self._ids["start_id"], *tokenizer.encode("assistant")]

    @staticmethod
    def can_read(tokenizer: ModelTokenizer) -> bool:
        """Whether a tokenizer has the tokens that open and end parts."""
        needed = [text for name, text in _HARMONY.items() if name != "constrain_id"]
        return all(tokenizer.backend.token_to_id(text) is not None for text in needed)

    def parsed(self, ids: Sequence[int]) -> ParsedResponse:
        """The parts of an answer; a call without its end is none yet."""
        parsed: ParsedResponse = parse_gpt_oss(self._tokenizer, [*self._opening, *ids], **self._ids)
        for call in parsed.tool_calls:
            start, end = call.token_span
            call.token_span = (max(0, start - len(self._opening)), end - len(self._opening))
        return parsed


def _call(raw: str, name: Any, arguments: Any, span: tuple[int, int]) -> ParsedToolCall:
    is_known = isinstance(arguments, dict) and isinstance(name, str) and bool(name)
    status = ToolCallParseStatus.OK if is_known else ToolCallParseStatus.INVALID_JSON
    return ParsedToolCall(raw=raw, name=name, arguments=arguments, token_span=span, status=status)


def _object(text: str) -> dict[str, Any] | None:
    value = _value(text) if text.startswith("{") else None
    return value if isinstance(value, dict) else None


def _value(text: str) -> Any:
    """The value of JSON; None where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
