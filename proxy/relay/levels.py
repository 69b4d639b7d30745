"""Capture levels as a proxy is set to them, and what a probe certified of an upstream.

Pure. The level that one record reaches in the end is decided in `relay/call.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec

from weir.proxy.relay.wire import asks
from weir.store.records.call_record import CaptureLevel


class Level(enum.StrEnum):
    """The capture levels of a proxy, best first."""

    TOKENS = "tokens"  # the proxy renders and parses; the engines' /generate
    PASSTHROUGH = "passthrough"  # the engine renders and parses, and returns its ids
    LOGPROBS = "logprobs"
    TEXT = "text"

    @property
    def best_record(self) -> CaptureLevel:
        """The level of a record that has everything this level promises."""
        return CaptureLevel.TOKENS if self in (Level.TOKENS, Level.PASSTHROUGH) else CaptureLevel(self.value)


class RouteForm(msgspec.Struct, frozen=True, kw_only=True):
    """The flags that make one route of an upstream return more, and the members to strip from its answers."""

    level: Level = Level.TEXT
    flags: dict[str, str] = {}  # member of the body → JSON text
    null: frozenset[str] = (
        frozenset()
    )  # members that are null in a whole answer without our flags; the others are absent
    null_streamed: frozenset[str] = frozenset()
    ignored_wishes: frozenset[str] = frozenset()  # paths in the body of wishes that change no prompt of the upstream

    def ignored_fields(self, fields: Mapping[str, Any]) -> tuple[str, ...]:
        """The paths of the wishes in a body that the upstream is known to ignore, in their order."""
        variables = fields.get("chat_template_kwargs")
        named = variables if isinstance(variables, dict) else {}
        asked = [name for name, value in fields.items() if value is not None]
        asked += [f"chat_template_kwargs.{name}" for name, value in named.items() if value is not None]
        return tuple(path for path in asked if path in self.ignored_wishes)

    def flags_for(self) -> dict[str, bytes]:
        """The flags as JSON text, to splice into a body."""
        return {name: text.encode() for name, text in self.flags.items()}

    def strip(self, fields: Mapping[str, Any], *, streamed: bool) -> dict[str, bool]:
        """The members that the agent did not ask for; True where they are null without our flags."""
        null = self.null_streamed if streamed else self.null
        asked = {member for flag, members in _SHOWN_BY.items() if asks(fields.get(flag)) for member in members}
        return {name: name in null for name in STRIPPED if name not in asked} if self.level is not Level.TEXT else {}


class Certified(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a probe: the level, and the form of each route that answered."""

    level: Level
    forms: dict[str, RouteForm] = {}
    reports_version: bool = False
    remarks: tuple[str, ...] = ()  # warnings about an upstream that works

    def form(self, dialect: str) -> RouteForm:
        """The form of a dialect's route; level text where the probe found no more."""
        return self.forms.get(dialect, RouteForm())


AT_TOKENS = Certified(level=Level.TOKENS)
STRIPPED = ("logprobs", "token_ids", "prompt_token_ids", "response_token_ids", "sglext")
_SHOWN_BY = {
    "logprobs": ("logprobs",),
    "return_token_ids": ("token_ids", "prompt_token_ids", "response_token_ids"),
    "return_prompt_token_ids": ("prompt_token_ids",),
    "return_input_ids_in_sglext": ("sglext",),
    "return_output_ids_in_sglext": ("sglext",),
}
