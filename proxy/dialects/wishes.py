"""What agents wish of the model's thinking and of its words, in every dialect.

Each wish names the variables by which chat templates fulfil it; which of them the model's template knows is not known
here. Pure. Invariant: no input makes a function here raise anything but `BadRequest`, which names the field.
"""

from __future__ import annotations

from typing import Any

from weir.proxy.conversation.call_request import Wish
from weir.proxy.dialects.body import optional, required_field, unsupported

SWITCHES = ("enable_thinking", "thinking")  # what templates call the switch of their thinking
THINKING = ("enabled", "disabled", "adaptive", "between_tools")
NO_EFFORT = "none"


def in_chat(fields: dict[str, Any]) -> tuple[Wish, ...]:
    """`chat_template_kwargs`, `reasoning_effort` and `verbosity`. Raises `BadRequest`."""
    named = optional(fields, "chat_template_kwargs", dict) or {}
    wishes = [
        Wish(f"chat_template_kwargs.{name}", ((name, value),), names_variable=True)
        for name, value in named.items()
        if value is not None
    ]
    effort, verbosity = optional(fields, "reasoning_effort", str), optional(fields, "verbosity", str)
    return (*wishes, *_effort("reasoning_effort", effort), *_verbosity("verbosity", verbosity))


def in_responses(fields: dict[str, Any]) -> tuple[Wish, ...]:
    """`reasoning` and `text.verbosity`. Raises `BadRequest`."""
    wishes: list[Wish] = []
    for name, value in (optional(fields, "reasoning", dict) or {}).items():
        where = f"reasoning.{name}"
        if name == "effort" and value is not None:
            wishes += _effort(where, required_field(fields["reasoning"], name, str, "reasoning"))
        elif value is not None:
            wishes.append(Wish(where))
    return (*wishes, *_verbosity("text.verbosity", _member(fields, "text", "verbosity")))


def in_messages(fields: dict[str, Any]) -> tuple[Wish, ...]:
    """`thinking` and `output_config.effort`. Raises `BadRequest`."""
    wishes: list[Wish] = []
    thinking = optional(fields, "thinking", dict)
    if thinking is not None:
        kind = required_field(thinking, "type", str, "thinking")
        if kind not in THINKING:
            raise unsupported("thinking.type", kind, *THINKING)
        wishes.append(Wish("thinking", _thinking(kind)))
        if thinking.get("budget_tokens") is not None:
            wishes.append(Wish("thinking.budget_tokens"))
    return (*wishes, *_effort("output_config.effort", _member(fields, "output_config", "effort")))


def _thinking(kind: str) -> tuple[tuple[str, Any], ...]:
    """The variables of a kind of thinking; none where the model itself is to decide."""
    if kind not in ("enabled", "disabled"):
        return ()
    switched = tuple((name, kind == "enabled") for name in SWITCHES)
    return switched if kind == "enabled" else (*switched, ("reasoning_effort", NO_EFFORT))


def _effort(where: str, effort: str | None) -> tuple[Wish, ...]:
    if effort is None:
        return ()
    off = tuple((name, False) for name in SWITCHES) if effort == NO_EFFORT else ()
    return (Wish(where, (("reasoning_effort", effort), *off)),)


def _verbosity(where: str, verbosity: str | None) -> tuple[Wish, ...]:
    return () if verbosity is None else (Wish(where, (("verbosity", verbosity),)),)


def _member(fields: dict[str, Any], outer: str, name: str) -> str | None:
    """A text in an object of the body; None where it is absent."""
    holder = optional(fields, outer, dict) or {}
    return None if holder.get(name) is None else str(required_field(holder, name, str, outer))
