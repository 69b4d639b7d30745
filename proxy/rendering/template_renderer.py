"""A renderer over a model's own chat template, for models whose family the `renderers` library does not know.

It writes by the template, and reads answers as the template writes them: by the parser for the calls that the template
shows. Invariant: an answer ends where the model's settings or its template end one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from renderers import DefaultRenderer, DefaultRendererConfig, ParsedResponse, ToolCallParseStatus

from weir.proxy.config import ProxyConfig
from weir.proxy.conversation.call_request import Message, Tool
from weir.proxy.rendering.chat_template import ChatTemplate
from weir.proxy.rendering.families import family_of, family_of_template
from weir.proxy.rendering.template_turns import TemplateTurns
from weir.proxy.rendering.template_variables import NO_VARIABLES, SWITCHES, Variables
from weir.proxy.rendering.tokenizer import ModelTokenizer
from weir.proxy.rendering.written_calls import HARMONY, LLAMA, MISTRAL, Harmony, LlamaCalls, MistralCalls

_PARSERS = {LLAMA: LlamaCalls, MISTRAL: MistralCalls}  # beside those of the library


class TemplateRenderer(DefaultRenderer):  # type: ignore[misc]  # the library is untyped
    """The library's renderer over any template, with the form, the ends and the turns of this one."""

    def __init__(self, tokenizer: ModelTokenizer, config: ProxyConfig, variables: Variables = NO_VARIABLES) -> None:
        """`variables` are those of the template that an agent wishes, beside those that the settings decide."""
        # Templates name the switch of their thinking in one of two ways; each ignores the other.
        switched = {} if config.thinking is None else dict.fromkeys(SWITCHES, config.thinking)
        self.template = ChatTemplate(tokenizer, switched | dict(variables))
        self.call_parser, self.family = family_of_template(self.template.written_call())
        named = named_ends(Path(tokenizer.name_or_path), tokenizer)
        self.turns = TemplateTurns(tokenizer, self.template, named, keeps_reasoning=config.keep_reasoning)
        end = [] if self.turns.end_id is None else [self.turns.end_id]
        self._ends = list(dict.fromkeys([*end, *named]))
        if self.call_parser == HARMONY and not Harmony.can_read(tokenizer):
            self.call_parser, self.family = None, family_of("")
        own = _PARSERS.get(self.call_parser or "")
        library = None if own is not None or self.call_parser == HARMONY else self.call_parser
        super().__init__(tokenizer, DefaultRendererConfig(tool_parser=library, reasoning_parser="think"))
        if own is not None:
            self._tool_parser = own(tokenizer)
        self._harmony = Harmony(tokenizer) if self.call_parser == HARMONY else None

    def render_ids(
        self, messages: list[Message], *, tools: list[Tool] | None = None, add_generation_prompt: bool = False
    ) -> list[int]:
        """The ids of what the template writes."""
        text = self.template.text(messages, tools, opens_answer=add_generation_prompt)
        return self._tokenizer.encode(text)  # type: ignore[no-any-return]

    def parse_response(self, token_ids: list[int], **options: Any) -> ParsedResponse:
        """The library's reading; arguments that are no JSON are texts, which forms with tags write plainly."""
        if self._harmony is not None:
            return self._harmony.parsed(token_ids)
        parsed = super().parse_response(token_ids, **options)
        for call in parsed.tool_calls:
            if call.status is ToolCallParseStatus.INVALID_JSON and isinstance(call.arguments, dict):
                call.status = ToolCallParseStatus.OK
        return parsed

    def get_stop_token_ids(self) -> list[int]:
        """The ids that end an answer, the template's own first."""
        return list(self._ends)


def named_ends(folder: Path, tokenizer: ModelTokenizer) -> list[int]:
    """The ids that end an answer by the folder's tokenizer, generation_config.json and config.json."""
    named: list[Any] = [tokenizer.eos_token_id]
    for file in ("generation_config.json", "config.json"):
        path = folder / file
        value = json.loads(path.read_text()) if path.exists() else {}
        ends = value.get("eos_token_id") if isinstance(value, dict) else None
        named += ends if isinstance(ends, list) else [ends]
    known = (number for number in named if type(number) is int and tokenizer.backend.id_to_token(number))
    return list(dict.fromkeys(known))
