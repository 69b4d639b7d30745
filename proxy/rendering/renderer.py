"""Messages → token ids and token ids → answers, by the model family's own renderer.

Which one that is, `opening.py` decides. Invariant: `parse` shows the agent all that the model wrote: a tool call that
cannot be parsed is given as text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from renderers import ParsedResponse, ParsedToolCall, Renderer, ToolCallParseStatus

from weir.proxy.conversation.call_request import Answer, Message, TokenLogprob, Tool, ToolCall
from weir.proxy.errors import BadRequest
from weir.proxy.rendering import hermes_tools
from weir.proxy.rendering.chat_template import QUESTION
from weir.proxy.rendering.families import family_of, with_hermes_calls
from weir.proxy.rendering.kept_messages import kept_by, refuse_dropped
from weir.proxy.rendering.stream_parser import Glimpse, Reading
from weir.proxy.rendering.template_renderer import TemplateRenderer
from weir.proxy.rendering.template_variables import TemplateVariables, Variables
from weir.proxy.rendering.tokenizer import ModelTokenizer

_MARK = "weir-5d2e-text"  # found again in rendered text


class Rendering:
    """A model's renderer and tokenizer."""

    def __init__(self, tokenizer: ModelTokenizer, renderer: Renderer, name: str, tool_prompt: str = "refuse") -> None:
        """`name` is that of the renderer in its library; `tool_prompt` is the setting of that name."""
        self.tokenizer = tokenizer
        self.name = name
        self.renderer = renderer
        self._by_template = renderer if isinstance(renderer, TemplateRenderer) else None
        self.family = family_of(name) if self._by_template is None else self._by_template.family
        self.stop_ids: list[int] = list(renderer.get_stop_token_ids())
        self.kept = kept_by(self._probed)
        self._has_system = self._probed([{"role": "system", "content": "Be brief."}, QUESTION], None) is not None
        self.writes_hermes = tool_prompt == "hermes" and not self.kept.whole_tools
        if self.writes_hermes:
            self.kept = replace(self.kept, tools=True, calls=True, results=True)
            self.family = with_hermes_calls(self.family, has_token=self._id(hermes_tools.CALL_MARK) is not None)
        self._structure = tokenizer.added_ids | frozenset(self.stop_ids)
        self.variables = TemplateVariables(frozenset(), lambda _: None, lambda _: None)  # those that prompts know

    def under(self, variables: Variables) -> Rendering:
        """The same under variables that it knows (`variables.fulfilled`)."""
        if not variables:
            return self
        changed = self.variables.rendering(variables)
        assert changed is not None
        return changed

    @property
    def needs_whole_prompts(self) -> bool:
        """Whether `extension` looks at a whole prompt, and not at its last turn only."""
        return self._by_template is not None and not self._by_template.turns.keeps_reasoning

    @property
    def knows_calls(self) -> bool:
        """Whether its tokenizer has the tokens of its family's tool calls."""
        return self.family.call_close is None or self._id(self.family.call_close) is not None

    def opening_of_text(self, prompt_ids: list[int]) -> str | None:
        """What the family writes between this prompt and the text of its answer; None where that is not known."""
        before = self._probed([QUESTION], None)
        whole = self._probed([QUESTION, {"role": "assistant", "content": _MARK}], None, opens_answer=False)
        if before is not None and whole is not None and whole.startswith(before) and _MARK in whole:
            return whole[len(before) : whole.index(_MARK)]
        marks = self.family.think_marks
        return f"\n{marks[1]}\n\n" if marks is not None and self.opens_reasoning(prompt_ids) else None

    def opens_reasoning(self, prompt_ids: list[int]) -> bool:
        """Whether the answer to this prompt begins in the middle of reasoning."""
        return self._parsed([], prompt_ids, None).reasoning_complete is False

    def render(self, messages: Sequence[Message], tools: list[Tool] | None) -> list[int]:
        """The whole prompt, ready for the model to answer. Raises `BadRequest` where the template refuses it."""
        try:
            return self.ids(messages, tools)
        except Exception as error:  # templates raise any exception; the agent's messages are the cause
            raise BadRequest(
                f"the model's chat template does not take these messages: {error}", param="messages"
            ) from error

    def ids(self, messages: Sequence[Message], tools: list[Tool] | None, *, opens_answer: bool = True) -> list[int]:
        """The ids of a conversation, as `render` gives them. Raises any exception where the template refuses it."""
        known = self.in_known_roles(messages)
        if self.writes_hermes:
            known, tools = hermes_tools.as_text(known, tools, has_system=self._has_system), None
        return list(self.renderer.render_ids(known, tools=tools, add_generation_prompt=opens_answer))

    def refuse_dropped(self, messages: Sequence[Message], tools: list[Tool] | None) -> None:
        """Raise `BadRequest` for what the model would never see of a request."""
        refuse_dropped(self.kept, messages, tools)

    def inexact_turns(self) -> list[str]:
        """The kinds of turns behind which exact ids do not continue; empty where all do."""
        return [] if self._by_template is None else self._by_template.turns.inexact()

    def facts(self) -> dict[str, str]:
        """What it does with a conversation, for people, by subject."""
        by = "the model's own chat template" if self._by_template is not None else self.name
        inexact = self.inexact_turns()
        turns = f"exact, but for {', '.join(inexact)}, which the template renders anew" if inexact else "exact"
        system = "kept" if self.kept.system and self._has_system else "refused: the template has none"
        facts = {"renderer": by, "later turns": turns, "system prompt": system, "tools": self._tools_fact()}
        return facts | {"wishes": self.variables.fact()}

    def _tools_fact(self) -> str:
        """How tools, their calls and their results come into prompts, and whether calls in answers are read."""
        if self.writes_hermes:
            return "as text in the system prompt (proxy.tool_prompt = hermes)"
        parts = {"tools": self.kept.tools, "calls": self.kept.calls, "results": self.kept.results}
        dropped = [name for name, is_kept in parts.items() if not is_kept]
        if dropped:
            return (
                f'refused: the template drops {" and ".join(dropped)}; proxy.tool_prompt = "hermes" writes them as text'
            )
        is_read = self._by_template is None or self._by_template.call_parser is not None
        return "kept" if is_read else "kept; calls in answers stay text, because their form has no parser here"

    def extension(
        self,
        last_turn: list[int],
        output_ids: list[int],
        new_messages: Sequence[Message],
        tools: list[Tool] | None,
        conversation: Sequence[Message] | None = None,
    ) -> list[int] | None:
        """What follows a prompt and its output: the rendering of the new messages; None where that cannot be proven.

        Of the prompt only its last turn is needed, but for `needs_whole_prompts`. The `conversation` ends with the new
        messages; without it, the output is parsed, and a template that needs the conversation proves nothing.
        """
        num_new = len(new_messages)
        new_messages = self.in_known_roles(new_messages)
        exact = last_turn + output_ids
        if self._by_template is not None:
            answer, earlier = self._answered(last_turn, output_ids, num_new, conversation, tools)
            if self.writes_hermes:
                return self._hermes_extension(exact, answer, new_messages, tools, earlier)
            return self._by_template.turns.extension(exact, answer, new_messages, tools, earlier)
        if self.writes_hermes:
            new_messages, tools = hermes_tools.as_text(new_messages, None, has_system=self._has_system), None
        bridged = self.renderer.bridge_to_next_turn(last_turn, output_ids, new_messages, tools=tools)
        if bridged is not None and bridged.token_ids[: len(exact)] == exact:
            return list(bridged.token_ids[len(exact) :])
        return self._grafted(exact, last_turn, new_messages, tools) if self.family.extends_any_turn else None

    def _answered(
        self,
        last_turn: list[int],
        output_ids: list[int],
        num_new: int,
        conversation: Sequence[Message] | None,
        tools: list[Tool] | None,
    ) -> tuple[Message, Callable[[], list[Message]] | None]:
        """The answer before the new messages, and what reads the messages before it, where they are known."""
        if conversation is None:
            return self.parse(output_ids, last_turn, tools, tools is not None, "call").message(), None
        end = len(conversation) - num_new
        if end and conversation[end - 1]["role"] == "assistant":
            return conversation[end - 1], lambda: self.in_known_roles(conversation[: end - 1])
        # Agents leave out an answer in which nothing was said.
        return Answer(content="", reasoning=None, tool_calls=()).message(), lambda: self.in_known_roles(
            conversation[:end]
        )

    def _hermes_extension(
        self,
        exact: list[int],
        answer: Message,
        new_messages: list[Message],
        tools: list[Tool] | None,
        earlier: Callable[[], list[Message]] | None,
    ) -> list[int] | None:
        """The extension by a template that gets tools as text."""
        assert self._by_template is not None
        read, has_system = earlier, self._has_system
        before = None if read is None else lambda: hermes_tools.as_text(read(), tools, has_system=has_system)
        said, *new = hermes_tools.as_text([answer, *new_messages], None, has_system=has_system)
        return self._by_template.turns.extension(exact, said, new, None, before)

    def in_known_roles(self, messages: Sequence[Message]) -> list[Message]:
        """The messages in the family's roles: `developer` becomes `system` where the template has no such role."""
        if self.family.has_developer or all(message["role"] != "developer" for message in messages):
            return list(messages)
        return [{**m, "role": "system"} if m["role"] == "developer" else m for m in messages]

    def _grafted(
        self, exact: list[int], last_turn: list[int], new_messages: Sequence[Message], tools: list[Tool] | None
    ) -> list[int] | None:
        """The extension of an empty turn, after a turn that the library rejects as malformed (ended while reasoning).

        The model wrote that turn all the same: its tokens stay as they are.
        """
        closing = exact[-1:] if exact[-1] in self.stop_ids else []
        bridged = self.renderer.bridge_to_next_turn(last_turn, closing, new_messages, tools=tools)
        return None if bridged is None else list(bridged.token_ids[len(last_turn) + len(closing) :])

    def parse(
        self,
        output_ids: list[int],
        prompt_ids: list[int],
        tools: list[Tool] | None,
        parse_tools: bool,
        call_id: str,
    ) -> Answer:
        """The answer that the model's tokens mean. With `parse_tools` False tool calls stay text.

        Tool calls are named after the call, so that the same tokens give the same names.
        """
        parsed = self._parsed(output_ids, prompt_ids, tools)
        if self.writes_hermes and parse_tools:
            _read_hermes(parsed)
        calls = [call for call in parsed.tool_calls if parse_tools and _is_usable(call)]
        content = self._content(parsed)
        if parsed.tool_calls and not calls:
            content = self._as_text(content, output_ids, parsed.tool_calls[0])
        elif len(calls) < len(parsed.tool_calls):
            content = "\n".join([content, *(c.raw for c in parsed.tool_calls if c not in calls)]).lstrip("\n")
        reasoning = (parsed.reasoning_content or "").strip()
        return Answer(content=content, reasoning=reasoning or None, tool_calls=_tool_calls(calls, call_id))

    def reading(self, prompt_ids: list[int], tools: list[Tool] | None, parse_tools: bool, call_id: str) -> Reading:
        """How the streamed answer to this prompt is parsed."""
        starts_open = self.opens_reasoning(prompt_ids)

        def glimpse(output_ids: list[int]) -> Glimpse:
            parsed = self._parsed(self._known_segments(output_ids), prompt_ids, tools)
            if self.writes_hermes and parse_tools:
                _read_hermes(parsed, may_be_open=True)
            calls = [call for call in parsed.tool_calls if parse_tools and _is_usable(call)]
            return Glimpse(
                content=self._content(parsed),
                reasoning=(parsed.reasoning_content or "").strip(),
                tool_calls=_tool_calls(calls, call_id),
                is_thinking=parsed.reasoning_complete is False,
                closed_explicitly=self._ended_by_mark(output_ids, starts_open),
            )

        return Reading(
            tokenizer=self.tokenizer.backend,
            glimpse=glimpse,
            structure=self._structure,
            stop_ids=frozenset(self.stop_ids),
            header_id=self._id(self.family.header),
            marks=(*(self.family.think_marks or ()), *self.family.call_marks),
            calls_are_text=self.family.calls_are_text and parse_tools,
        )

    def num_reasoning(self, output_ids: list[int], answer: Answer) -> int:
        """How many output tokens are reasoning, its closing mark with it; counted anew where no one token closes it."""
        if not answer.reasoning:
            return 0
        close = self._id(self.family.think_marks[1]) if self.family.think_marks is not None else None
        if close is not None and close in output_ids:
            return output_ids.index(close) + 1
        says_nothing_else = not answer.content and not answer.tool_calls
        return len(output_ids) if says_nothing_else else len(self.tokenizer.encode(answer.reasoning))

    def text(self, output_ids: list[int]) -> str:
        """The plain text of a completion's output, without the token that ends it."""
        return self.tokenizer.decode(output_ids, skip_special_tokens=True)

    def token_logprobs(
        self,
        output_ids: Sequence[int],
        logprobs: Sequence[float],
        top: Sequence[Sequence[tuple[int, float]]] | None = None,
    ) -> list[TokenLogprob]:
        """Output tokens as agents see them: each with its text and logprob, without the end of turn.

        `top` holds the likeliest tokens of each position, if they are wanted: ids with their logprobs.
        """
        decode, stop_ids = self.tokenizer.decode, self.stop_ids
        rows = zip(output_ids, logprobs, top or [()] * len(output_ids), strict=True)
        return [
            TokenLogprob(text=decode([n]), logprob=logprob, top=tuple((decode([m]), other) for m, other in likeliest))
            for n, logprob, likeliest in rows
            if n not in stop_ids
        ]

    def text_reading(self) -> Reading:
        """How such an output is parsed while it streams."""
        return Reading(
            tokenizer=self.tokenizer.backend,
            glimpse=lambda output_ids: Glimpse(content=self.text(output_ids), reasoning=""),
            structure=self.tokenizer.special_ids,
            stop_ids=frozenset(),
            skips_special=True,
        )

    def _content(self, parsed: ParsedResponse) -> str:
        content: str = parsed.content
        return content.strip() if self.family.strips_content else content

    def _known_segments(self, output_ids: list[int]) -> list[int]:
        """The output without a last part whose kind is not yet known."""
        if self.family.segment_end is None:
            return output_ids
        end = self._id(self.family.segment_end)
        start = next((i + 1 for i in range(len(output_ids) - 1, -1, -1) if output_ids[i] == end), 0)
        openings = {self._id(text) for text in self.family.segment_openings}
        return output_ids if openings.intersection(output_ids[start : start + 2]) else output_ids[:start]

    def _probed(self, messages: list[Message], tools: list[Tool] | None, *, opens_answer: bool = True) -> str | None:
        """The text of a prompt; None where it is refused."""
        try:
            known = self.in_known_roles(messages)
            ids = self.renderer.render_ids(known, tools=tools, add_generation_prompt=opens_answer)
        except Exception:  # templates and renderers raise any exception
            return None
        return self.tokenizer.decode(list(ids))

    def _id(self, token: str | None) -> int | None:
        number: int | None = self.tokenizer.backend.token_to_id(token) if token else None
        return number

    def _ended_by_mark(self, output_ids: list[int], starts_open: bool) -> bool:
        """Whether there is no reasoning, or its own marker closed it."""
        if self.family.think_marks is None:
            return True
        open_id, close_id = (self._id(mark) for mark in self.family.think_marks)
        if open_id is not None and close_id is not None:
            return close_id in output_ids or not (starts_open or open_id in output_ids)
        text = self.tokenizer.decode(output_ids)
        opening, closing = self.family.think_marks
        return closing in text or not (starts_open or opening in text)

    def _parsed(self, output_ids: list[int], prompt_ids: list[int] | None, tools: list[Tool] | None) -> ParsedResponse:
        return self.renderer.parse_response(output_ids, tools=tools, prompt_ids=prompt_ids)

    def _as_text(self, content: str, output_ids: list[int], first: ParsedToolCall) -> str:
        """The content, followed by all that the model wrote from its first tool call on."""
        start = first.token_span[0] if first.token_span else 0
        end = next((i for i, number in enumerate(output_ids) if number in self.stop_ids), len(output_ids))
        text = self.tokenizer.decode(output_ids[start:end]) if first.token_span else first.raw
        return f"{content}\n{text}" if content else text


def _read_hermes(parsed: ParsedResponse, *, may_be_open: bool = False) -> None:
    """Move calls that are text into the calls; with `may_be_open`, cut off what may become one."""
    content, calls = hermes_tools.calls_in(parsed.content)
    parsed.content = hermes_tools.before_open_call(content) if may_be_open else content
    parsed.tool_calls += [ParsedToolCall(raw="", name=name, arguments=arguments) for name, arguments in calls]


def _is_usable(call: ParsedToolCall) -> bool:
    readable = call.status in (ToolCallParseStatus.OK, ToolCallParseStatus.UNKNOWN_TOOL)
    return readable and bool(call.name)


def _tool_calls(calls: list[ParsedToolCall], call_id: str) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(id=call.id or f"{call_id}_{i}", name=str(call.name), arguments=_json_text(call.arguments))
        for i, call in enumerate(calls)
    )


def _json_text(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments
    return json.dumps({} if arguments is None else arguments, ensure_ascii=False)
