"""Grammars of answers that may be tool calls, in Lark, as llguidance reads it: calls of known tools, or a format.

They are written for families that write the arguments of a call as JSON. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from weir.proxy.conversation.call_request import Tool
from weir.proxy.rendering.renderer import Rendering

# Without a limit, small models write white space between the parts of JSON until their tokens are used up.
_SPACES = {"x-guidance": {"whitespace_pattern": r"[ \n\r\t]{1,32}"}}
_ANYTHING = {"type": "object"}


def are_known(rendering: Rendering) -> bool:
    """Whether the calls of the model's family can be written as a grammar."""
    family = rendering.family
    return family.call_opening is not None and family.arguments_end is not None and rendering.knows_calls


def format_or_calls(rendering: Rendering, schema: str, tools: Sequence[Tool], *, several: bool) -> str:
    """An answer that is JSON of a schema, or a call, or `several`; the family's calls must be known."""
    mark, line_end, text = (rendering.family.call_opening or "").partition("\n")
    token = _token(rendering, mark)
    opening = line_end + text if token is not None else mark + line_end + text
    rules, calls = _calls(rendering, tools, opening)
    more = ' ("\\n" call)*' if several and rendering.family.call_close is not None else ""
    call = f"{token or ''} ( {calls} ){_close(rendering)}"
    return f"start: answer | call{more}\nanswer: {_json(json.loads(schema))}\ncall: {call}\n{rules}"


def rest_of_call(rendering: Rendering, tools: Sequence[Tool], named: str | None) -> str:
    """What follows the forced opening of a call, up to its arguments where the tool is `named`."""
    family = rendering.family
    if named is None:
        rules, calls = _calls(rendering, tools, "")
        return f"start: ( {calls} ){_close(rendering)}\n{rules}"
    *_, function = (tool["function"] for tool in tools if tool["function"]["name"] == named)  # of two, the last counts
    end = _text(family.arguments_end or "")
    return f'start: " "? arguments {end}{_close(rendering)}\narguments: {_json(_parameters(function))}\n'


def _calls(rendering: Rendering, tools: Sequence[Tool], opening: str) -> tuple[str, str]:
    """A rule for a call of each tool without the marks around it, and the alternatives of these rules."""
    family, rules = rendering.family, []
    for number, tool in enumerate(tools):
        function = tool["function"]
        name = _text(opening + json.dumps(function["name"])[1:-1] + family.name_end)
        rules.append(f'call_{number}: {name} " "? arguments_{number} {_text(family.arguments_end or "")}\n')
        rules.append(f"arguments_{number}: {_json(_parameters(function))}\n")
    return "".join(rules), " | ".join(f"call_{number}" for number in range(len(tools)))


def _parameters(function: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a tool's arguments where the agent wants it kept (`strict`), else that of any object."""
    return (function.get("parameters") or _ANYTHING) if function.get("strict") is True else _ANYTHING


def _close(rendering: Rendering) -> str:
    close = rendering.family.call_close
    return "" if close is None else f" {_token(rendering, close)}"


def _token(rendering: Rendering, text: str) -> str | None:
    number = rendering.tokenizer.backend.token_to_id(text)
    return None if number is None else f"<[{number}]>"


def _json(schema: Mapping[str, Any]) -> str:
    return f"%json {json.dumps({**_SPACES, **schema})}"


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
