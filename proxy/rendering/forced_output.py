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
from weir.proxy.rendering import call_grammars
from weir.proxy.rendering.renderer import Rendering

GRAMMARS = frozenset({"json_schema", "regex", "ebnf", "structural_tag"})


@dataclass(frozen=True, slots=True)
class Steering:
    """Ids that are appended to the prompt, ids after which the answer ends, its grammar by the engine's field."""

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
    return _has_format(request) or _wants_strict_call(request)


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
        return Steering([], rendering.stop_ids, _format(request))
    if request.prefill:
        forced = said if said is not None else _prefilled(rendering, request, prompt_ids)
        return Steering(forced, _stop_ids(rendering, request), _grammar(rendering, request, grammars))
    is_forced = request.tool_use is ToolUse.REQUIRED
    text = _call_opening(rendering, _only_tool(request)) if is_forced else ""
    forced = rendering.tokenizer.encode(text) if text else []
    if (is_forced or has_format) and rendering.opens_reasoning(prompt_ids):
        forced = _closed_reasoning(rendering) + forced
    grammar = _grammar(rendering, request, grammars)
    # A grammar that allows a call or the format ends either by itself; what closes a call must not end the format.
    stops_itself = has_format and "ebnf" in grammar and not is_forced
    return Steering(forced, rendering.stop_ids if stops_itself else _stop_ids(rendering, request), grammar)


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
    return bool(_format(request))


def _format(request: CallRequest) -> dict[str, Any]:
    """The grammar of the format that the agent asked for, in the engine's own field."""
    return {name: value for name, value in request.sampling.extra.items() if name in GRAMMARS}


def _only_tool(request: CallRequest) -> str | None:
    """The name of the one tool that a required call can have; None where the model chooses."""
    tools = request.tools or []
    return str(tools[0]["function"]["name"]) if request.tool_named is None and len(tools) == 1 else request.tool_named


def _wants_strict_call(request: CallRequest) -> bool:
    """Whether a call must come whose arguments the agent wants kept to their schema (`strict`)."""
    name = _only_tool(request)
    may_come = (tool["function"] for tool in request.tools or [] if name in (None, tool["function"]["name"]))
    return request.tool_use is ToolUse.REQUIRED and any(function.get("strict") is True for function in may_come)


def _grammar(rendering: Rendering, request: CallRequest, grammars: EngineGrammars) -> dict[str, Any]:
    """The grammar of an answer in a format, of a strict call that must come, or of either where both may come.

    A call that must come has no format: the format is that of the answer after it.
    """
    tools = request.tools or []
    can_write = grammars.take_lark and call_grammars.are_known(rendering)
    if request.tool_use is ToolUse.REQUIRED:
        wanted = can_write and _wants_strict_call(request)
        return {"ebnf": call_grammars.rest_of_call(rendering, tools, _only_tool(request))} if wanted else {}
    asked = _format(request)
    if not asked or not request.parses_tools:
        return asked
    if not can_write or request.prefill:
        raise BadRequest(
            f"{request.format_field}: a format and tools that may be called are kept together only by engines with the "
            "grammar backend llguidance, for models that write calls as JSON (this one's renderer is "
            f"{rendering.name!r}), and not behind a begun answer; leave out one of them or "
            'send tool_choice = "none".',
            param=request.format_field,
            code="unsupported_parameter",
        )
    several = request.parallel_tool_calls
    return {"ebnf": call_grammars.format_or_calls(rendering, asked["json_schema"], tools, several=several)}


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
