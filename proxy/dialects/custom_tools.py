"""Custom tools of a Responses body, such as codex's `apply_patch`: the caller runs them, and their input is any text.

The model sees a function with one argument, `input`. In the items of an answer and of the next request the text stands
as itself. Pure. Invariant: a call of the form that the model knows is the same call in the next request.
"""

from __future__ import annotations

from typing import Any

import msgspec

from weir.proxy.dialects.body import refuse_unknown, required_field, unsupported

READ = frozenset({"type", "name", "description", "format"})
_FORMATS = ("text", "grammar")
_PARAMETERS = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


class _Arguments(msgspec.Struct, forbid_unknown_fields=True):
    input: str


_decode = msgspec.json.Decoder(_Arguments).decode


def function_of(item: dict[str, Any], where: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The function that stands for a custom tool, and the paths of fields that engines do not keep to.

    A grammar of its input goes into the description. Raises `BadRequest`.
    """
    refuse_unknown(item, READ, where)
    about = required_field(item, "description", str, where) if item.get("description") is not None else ""
    given = item.get("format") is not None
    form = required_field(item, "format", dict, where) if given else {"type": "text"}
    kind = required_field(form, "type", str, f"{where}.format")
    if kind not in _FORMATS:
        raise unsupported(f"{where}.format.type", kind, *_FORMATS)
    ignored: tuple[str, ...] = ()
    if kind == "grammar":
        syntax, definition = (required_field(form, n, str, f"{where}.format") for n in ("syntax", "definition"))
        about = f"{about}\n\nThe input follows this grammar ({syntax}):\n{definition}".lstrip()
        ignored = (f"{where}.format",)
    function = {"name": required_field(item, "name", str, where), "parameters": _PARAMETERS}
    return (function | {"description": about} if about else function), ignored


def arguments_of(text: str) -> str:
    """The arguments by which the model calls a custom tool with this input."""
    return msgspec.json.encode(_Arguments(text)).decode()


def input_in(arguments: str) -> str:
    """The input in the arguments of a call; arguments of another form are given as they are."""
    try:
        return _decode(arguments).input
    except (msgspec.DecodeError, UnicodeError):
        return arguments
