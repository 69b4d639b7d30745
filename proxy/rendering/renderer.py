"""Messages → token ids and token ids → answers, by the model family's own renderer.

The renderer comes from the `renderers` library: named in the configuration, or chosen by the model's architecture if
its first tokens agree with the folder's own chat template; else the library's default, which wraps that template; exact
ids then continue by `template_turns.py`. Invariant: `parse` shows the agent all that the model wrote: a tool call
that cannot be parsed is given as text.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from renderers import (
    DefaultRendererConfig,
    ParsedResponse,
    ParsedToolCall,
    Renderer,
    ToolCallParseStatus,
    config_from_name,
    create_renderer,
)

from weir.proxy.config import ProxyConfig
from weir.proxy.conversation.call_request import Answer, Message, TokenLogprob, Tool, ToolCall
from weir.proxy.errors import BadRequest, SetupError
from weir.proxy.rendering.families import DEFAULT, family_of
from weir.proxy.rendering.stream_parser import Glimpse, Reading
from weir.proxy.rendering.template_turns import TemplateTurns
from weir.proxy.rendering.tokenizer import ModelTokenizer

BY_MODEL_TYPE = {
    "deepseek_v3": "deepseek-v3",
    "glm4_moe": "glm-4.5",
    "gpt_oss": "gpt-oss",
    "kimi_k2": "kimi-k2",
    "llama": "llama-3",
    "minimax_m2": "minimax-m2",
    "qwen3": "qwen3",
    "qwen3_5": "qwen3.5",
    "qwen3_moe": "qwen3",
}
_SAMPLE: list[Message] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]

logger = logging.getLogger("weir.proxy.rendering.renderer")


class Rendering:
    """A model's renderer and tokenizer."""

    def __init__(self, tokenizer: ModelTokenizer, renderer: Renderer, name: str) -> None:
        """`name` is that of the renderer in its library."""
        self.tokenizer = tokenizer
        self.name = name
        self.family = family_of(name)
        self.renderer = renderer
        self.stop_ids: list[int] = list(renderer.get_stop_token_ids())
        self._structure = tokenizer.added_ids | frozenset(self.stop_ids)
        self._turns = TemplateTurns(tokenizer, self.stop_ids) if name == DEFAULT else None

    @property
    def can_bridge(self) -> bool:
        """Whether this renderer can extend exact ids at all."""
        return self.name != DEFAULT

    @property
    def knows_calls(self) -> bool:
        """Whether its tokenizer has the tokens of its family's tool calls."""
        return self.family.call_close is None or self._id(self.family.call_close) is not None

    def opens_reasoning(self, prompt_ids: list[int]) -> bool:
        """Whether the answer to this prompt begins in the middle of reasoning."""
        return self._parsed([], prompt_ids, None).reasoning_complete is False

    def render(self, messages: Sequence[Message], tools: list[Tool] | None) -> list[int]:
        """The whole prompt, ready for the model to answer. Raises `BadRequest` where the template refuses it."""
        try:
            return list(
                self.renderer.render_ids(self.in_known_roles(messages), tools=tools, add_generation_prompt=True)
            )
        except Exception as error:  # templates raise any exception; the agent's messages are the cause
            raise BadRequest(
                f"the model's chat template does not take these messages: {error}", param="messages"
            ) from error

    def keeps_turns_exact(self) -> bool:
        """Whether later turns continue the exact ids: by the family's renderer, or by the model's own chat template."""
        return self.can_bridge or self.extension([], self.stop_ids[:1], [_SAMPLE[-1]], None) is not None

    def extension(
        self, last_turn: list[int], output_ids: list[int], new_messages: Sequence[Message], tools: list[Tool] | None
    ) -> list[int] | None:
        """What follows a prompt and its output: the rendering of the new messages; None where that cannot be proven.

        Of the prompt only its last turn is needed: no renderer looks further back.
        """
        new_messages = self.in_known_roles(new_messages)
        if self._turns is not None:
            return self._turns.extension(last_turn + output_ids, new_messages, tools)
        bridged = self.renderer.bridge_to_next_turn(last_turn, output_ids, new_messages, tools=tools)
        exact = last_turn + output_ids
        if bridged is not None and bridged.token_ids[: len(exact)] == exact:
            return list(bridged.token_ids[len(exact) :])
        return self._grafted(exact, last_turn, new_messages, tools) if self.family.extends_any_turn else None

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

    def token_logprobs(self, output_ids: Sequence[int], logprobs: Sequence[float]) -> list[TokenLogprob]:
        """Output tokens as agents see them: each with its text and logprob, without the end of turn."""
        decode, stop_ids = self.tokenizer.decode, self.stop_ids
        pairs = zip(output_ids, logprobs, strict=True)
        return [TokenLogprob(text=decode([n]), logprob=logprob) for n, logprob in pairs if n not in stop_ids]

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


def open_rendering(folder: Path, model_name: str, config: ProxyConfig) -> Rendering:
    """Choose and build the renderer of a model folder. Raises `SetupError`."""
    tokenizer = ModelTokenizer(folder)
    if config.renderer not in ("auto", DEFAULT):
        return Rendering(tokenizer, _build(tokenizer, config.renderer, config), config.renderer)
    name = BY_MODEL_TYPE.get(_model_type(folder)) if config.renderer == "auto" else None
    rendering = _chosen(tokenizer, name, config) if name else None
    return rendering or _default(tokenizer, model_name)


def context_length(folder: Path) -> int | None:
    """max_position_embeddings of the model's configuration, where it names one."""
    config = _model_config(folder)
    length = config.get("max_position_embeddings") or config.get("text_config", {}).get("max_position_embeddings")
    return length if isinstance(length, int) else None


def _chosen(tokenizer: ModelTokenizer, name: str, config: ProxyConfig) -> Rendering | None:
    """The renderer of the model's architecture, unless the folder's tokenizer or chat template contradicts it."""
    try:
        rendering = Rendering(tokenizer, _build(tokenizer, name, config), name)
    except SetupError as error:
        logger.warning("the renderer %r does not fit the tokenizer in %s: %s", name, tokenizer.name_or_path, error)
        return None
    if tokenizer.chat_template is not None and rendering.render(_SAMPLE, None) != _by_template(tokenizer, config):
        logger.warning("the chat template in %s is not that of the renderer %r", tokenizer.name_or_path, name)
        return None
    return rendering


def _by_template(tokenizer: ModelTokenizer, config: ProxyConfig) -> list[int] | None:
    arguments: dict[str, Any] = {} if config.thinking is None else {"enable_thinking": config.thinking}
    try:
        ids: list[int] = tokenizer.apply_chat_template(_SAMPLE, add_generation_prompt=True, **arguments)
    except Exception as error:  # a template that refuses the sample proves nothing about the renderer
        logger.warning("the chat template in %s does not take a sample: %s", tokenizer.name_or_path, error)
        return None
    return ids


def _default(tokenizer: ModelTokenizer, model_name: str) -> Rendering:
    if tokenizer.chat_template is None:
        raise SetupError(
            f"the model {model_name} in {tokenizer.name_or_path} has no chat template and no known renderer; "
            "name one in proxy.renderer"
        )
    has_calls = tokenizer.backend.token_to_id("<tool_call>") is not None
    settings = DefaultRendererConfig(tool_parser="qwen3" if has_calls else None, reasoning_parser="think")
    rendering = Rendering(tokenizer, create_renderer(tokenizer, settings), DEFAULT)
    if rendering.keeps_turns_exact():
        logger.info("no renderer is known for the model %s: its own chat template keeps turns exact", model_name)
    else:
        logger.warning(
            "no renderer is known for the model %s, and its own chat template writes a turn differently by what came "
            "before: later turns are tokenised afresh; name a renderer in proxy.renderer to keep turns exact",
            model_name,
        )
    return rendering


def _build(tokenizer: ModelTokenizer, name: str, config: ProxyConfig) -> Renderer:
    try:
        settings: Any = config_from_name(name)
        changes: dict[str, Any] = {"thinking_retention": "all"} if config.keep_reasoning else {}
        if config.thinking is not None and "enable_thinking" in type(settings).model_fields:
            changes["enable_thinking"] = config.thinking
        return create_renderer(tokenizer, type(settings)(**changes))
    except Exception as error:  # the library raises any exception; the start must end with a clear error
        raise SetupError(f"cannot build the renderer {name!r}: {error}; set proxy.renderer to another") from error


def _model_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    value = json.loads(path.read_text()) if path.exists() else {}
    return value if isinstance(value, dict) else {}


def _model_type(folder: Path) -> str:
    return str(_model_config(folder).get("model_type", ""))


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
