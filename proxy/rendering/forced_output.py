"""Requirements on an answer, as tokens and grammars: a format, a tool call that must come, or at most one tool call.

A forced beginning is part of the prompt, never of the output: no token counts as sampled that the model did not choose.
Invariant: a requirement that the model's family cannot meet is refused by its name. Pure. Engines enforce grammars.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from weir.proxy.conversation.call_request import CallRequest, ToolUse
from weir.proxy.errors import BadRequest
from weir.proxy.rendering.renderer import Rendering

GRAMMARS = frozenset({"json_schema", "regex", "ebnf", "structural_tag"})


@dataclass(frozen=True, slots=True)
class Steering:
    """Ids that are appended to the prompt, ids after which the answer ends, and a grammar in the engine's own field."""

    forced_ids: list[int]
    stop_ids: list[int]
    grammar: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineGrammars:
    """What the engines do with grammars, as far as they say."""

    are_kept: bool = True
    take_lark: bool = False  # in the field `ebnf`


def asks_for_grammar(request: CallRequest) -> bool:
    """Whether it matters to a request what the engines do with grammars."""
    return _has_format(request) or _strict_parameters(request) is not None


def steered(
    rendering: Rendering,
    request: CallRequest,
    prompt_ids: list[int],
    grammars: EngineGrammars = EngineGrammars(),
    said: list[int] | None = None,
) -> Steering:
    """The steering of an answer to this prompt, which begins with the ids `said` if they are known.

    Raises `BadRequest`.
    """
    has_format = _has_format(request)
    if has_format and not grammars.are_kept:
        raise BadRequest(
            f"{request.format_field}: an engine here keeps no grammars (its grammar_backend is none), so no format "
            "can be enforced; leave it out, or start the engine with a grammar backend.",
            param=request.format_field,
            code="unsupported_parameter",
        )
    if request.raw_prompts:
        return Steering([], rendering.stop_ids)
    if has_format and request.parses_tools:
        raise BadRequest(
            f"{request.format_field}: a format cannot be kept while tools may be called; leave out one of them or send "
            'tool_choice = "none".',
            param=request.format_field,
            code="unsupported_parameter",
        )
    if request.prefill:
        forced = said if said is not None else _prefilled(rendering, request, prompt_ids)
        return Steering(forced, _stop_ids(rendering, request))
    is_forced = request.tool_use is ToolUse.REQUIRED
    text = _call_opening(rendering, _only_tool(request)) if is_forced else ""
    forced = rendering.tokenizer.encode(text) if text else []
    if (is_forced or has_format) and rendering.opens_reasoning(prompt_ids):
        forced = _closed_reasoning(rendering) + forced
    return Steering(forced, _stop_ids(rendering, request), _rest_of_call(rendering, request, grammars))


def _prefilled(rendering: Rendering, request: CallRequest, prompt_ids: list[int]) -> list[int]:
    """The beginning of an answer that the agent wrote."""
    opening = rendering.opening_of_text(prompt_ids)
    if opening is None:
        raise BadRequest(
            f"messages: a last assistant message cannot be continued by a model with the renderer {rendering.name!r}; "
            "end with a user message.",
            param="messages",
        )
    return rendering.tokenizer.encode(opening + request.prefill)


def _has_format(request: CallRequest) -> bool:
    return not GRAMMARS.isdisjoint(request.sampling.extra)


def _only_tool(request: CallRequest) -> str | None:
    """The name of the one tool that a required call can have; None where the model chooses."""
    tools = request.tools or []
    return str(tools[0]["function"]["name"]) if request.tool_named is None and len(tools) == 1 else request.tool_named


def _strict_parameters(request: CallRequest) -> dict[str, Any] | None:
    """The schema of the arguments of the tool that must be called, where the agent wants it kept (`strict`)."""
    name = _only_tool(request) if request.tool_use is ToolUse.REQUIRED else None
    functions = [tool["function"] for tool in request.tools or []]
    wanted: dict[str, Any] = next((one for one in functions if name is not None and one["name"] == name), {})
    return (wanted.get("parameters") or {"type": "object"}) if wanted.get("strict") is True else None


def _rest_of_call(rendering: Rendering, request: CallRequest, grammars: EngineGrammars) -> dict[str, str]:
    """The grammar of a strict tool's arguments and of what closes its call; none where engines or family cannot."""
    schema, end = _strict_parameters(request), rendering.family.arguments_end
    if schema is None or end is None or not grammars.take_lark:
        return {}
    close = rendering.family.call_close
    closing = f" <[{rendering.tokenizer.backend.token_to_id(close)}]>" if close is not None else ""
    return {"ebnf": f'start: " "? arguments {json.dumps(end)}{closing}\narguments: %json {json.dumps(schema)}\n'}


def _call_opening(rendering: Rendering, named: str | None) -> str:
    family = rendering.family
    if family.call_opening is None or not rendering.knows_calls:
        raise BadRequest(
            f"tool_choice: a model with the renderer {rendering.name!r} cannot be forced to call a tool; "
            'send "auto" or "none".',
            param="tool_choice",
            code="unsupported_parameter",
        )
    return family.call_opening + (json.dumps(named)[1:-1] + family.name_end if named is not None else "")


def _closed_reasoning(rendering: Rendering) -> list[int]:
    marks = rendering.family.think_marks
    if marks is None:
        raise BadRequest(
            f"A model with the renderer {rendering.name!r} thinks before it answers, and its answer cannot be forced.",
            param="tool_choice",
            code="unsupported_parameter",
        )
    return rendering.tokenizer.encode(f"\n{marks[1]}\n\n")


def _stop_ids(rendering: Rendering, request: CallRequest) -> list[int]:
    if request.parallel_tool_calls or not request.parses_tools or rendering.family.calls_are_text:
        return rendering.stop_ids
    close = rendering.family.call_close
    close_id = rendering.tokenizer.backend.token_to_id(close) if close is not None else None
    if close_id is None:
        raise BadRequest(
            f"parallel_tool_calls = false: a model with the renderer {rendering.name!r} cannot be kept to one call.",
            param="parallel_tool_calls",
            code="unsupported_parameter",
        )
    return [*rendering.stop_ids, close_id]
