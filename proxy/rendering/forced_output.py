"""Requirements on an answer, as tokens: a tool call that must come, or at most one tool call.

A forced beginning is part of the prompt, never of the output: no token counts as sampled that the model did not choose.
Invariant: a requirement that the model's family cannot meet is refused by its name. Pure. Engines enforce grammars.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from weir.proxy.conversation.call_request import CallRequest, ToolUse
from weir.proxy.errors import BadRequest
from weir.proxy.rendering.renderer import Rendering

GRAMMARS = frozenset({"json_schema", "regex", "ebnf", "structural_tag"})


@dataclass(frozen=True, slots=True)
class Steering:
    """Ids that are appended to the prompt, and ids after which the answer ends."""

    forced_ids: list[int]
    stop_ids: list[int]


def steered(rendering: Rendering, request: CallRequest, prompt_ids: list[int]) -> Steering:
    """The steering of an answer to this prompt. Raises `BadRequest`."""
    if request.raw_prompts:
        return Steering([], rendering.stop_ids)
    has_grammar = not GRAMMARS.isdisjoint(request.sampling.extra)
    if has_grammar and request.parses_tools:
        raise BadRequest(
            "A response format cannot be kept while tools may be called; leave out one of them or send "
            'tool_choice = "none".',
            param="response_format",
            code="unsupported_parameter",
        )
    is_forced = request.tool_use is ToolUse.REQUIRED
    text = _call_opening(rendering, request.tool_named) if is_forced else ""
    forced = rendering.tokenizer.encode(text) if text else []
    if (is_forced or has_grammar) and rendering.opens_reasoning(prompt_ids):
        forced = _closed_reasoning(rendering) + forced
    return Steering(forced, _stop_ids(rendering, request))


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
