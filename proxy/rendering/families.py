"""Properties of model families that the `renderers` library does not expose.

Only properties that tests confirm are listed; anything else is refused or held back, never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family of models, by the name of its renderer.

    `call_opening` and `name_end` surround the name in a tool call; what stands before the arguments can be forced.
    `call_close` is the one token that closes a call, after which an answer may end.
    """

    call_opening: str | None = None
    name_end: str = ""
    arguments_end: str | None = None  # what follows arguments that are JSON, before `call_close`
    call_close: str | None = None
    calls_are_text: bool = False  # an answer that is a JSON object may turn out to be a tool call
    think_marks: tuple[str, str] | None = ("<think>", "</think>")  # None: its parts are marked by their kind
    call_marks: tuple[str, ...] = ()  # texts that open tool calls where no single token does
    strips_content: bool = False  # its template puts white space around the content
    header: str | None = None  # a token before the answer that some models repeat
    segment_end: str | None = None  # the token that ends a part of an answer
    segment_openings: tuple[str, ...] = ()  # the kind of a part that opens otherwise is known only at its end
    extends_any_turn: bool = False  # the text after a turn does not depend on the turn's content
    has_developer: bool = False  # its template has a role `developer`


_HERMES = Family(
    call_opening='<tool_call>\n{"name": "',
    name_end='", "arguments":',
    arguments_end="}\n",
    call_close="</tool_call>",
    extends_any_turn=True,
)
_XML = Family(call_opening="<tool_call>\n<function=", name_end=">\n", call_close="</tool_call>")
_GLM = Family(call_opening="<tool_call>", name_end="\n", call_close="</tool_call>", strips_content=True)
_GLM_5 = Family(strips_content=True)
_DEEPSEEK = Family(
    call_opening="<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    name_end="\n```json\n",
    header="<｜Assistant｜>",
)
_OTHER = Family()

FAMILIES = {
    DEFAULT: replace(_HERMES, extends_any_turn=False),
    "qwen3": _HERMES,
    "qwen3.5": _XML,
    "qwen3.6": _XML,
    "qwen3.8": _XML,
    "glm-4.5": _GLM,
    "glm-5": _GLM_5,
    "glm-5.1": _GLM_5,
    "glm-5.3": _GLM_5,
    "llama-3": Family(call_opening='{"name": "', name_end='", "parameters":', arguments_end="}", calls_are_text=True),
    "deepseek-v3": _DEEPSEEK,
    "deepseek-r1": _DEEPSEEK,
    "deepseek-v4": Family(has_developer=True, call_marks=("<｜DSML｜tool_calls>",)),
    "gemma4": Family(has_developer=True, think_marks=None),
    "gpt-oss": Family(has_developer=True, think_marks=None),
    "hy3": Family(think_marks=("<think:opensource>", "</think:opensource>")),
    "inkling": Family(
        think_marks=None,
        segment_end="<|end_message|>",
        segment_openings=("<|content_text|>", "<|content_thinking|>"),
    ),
}


PROBE_ARGUMENT = "probe_weir_key"  # the argument of the call that is written to find out
# How calls look that a template writes: what shows it, the parser for it, and the family's properties.
_WRITTEN_CALLS: tuple[tuple[str, str, Family], ...] = (
    ("<function=", "qwen3.5", _XML),
    ("<arg_key>", "glm", _GLM),
    ("<tool_call>", "qwen3", FAMILIES[DEFAULT]),
    ("<｜tool▁sep｜>", "deepseek-v3", _DEEPSEEK),
    ("[TOOL_CALLS]", "mistral", _OTHER),
    ("to=functions.", "harmony", Family(think_marks=None)),
    ('"parameters": {"' + PROBE_ARGUMENT, "llama", FAMILIES["llama-3"]),
)


def family_of(renderer: str) -> Family:
    """The family of a renderer, by its name."""
    return FAMILIES.get(renderer, _OTHER)


def family_of_template(written_call: str) -> tuple[str | None, Family]:
    """The parser for calls as a template writes them, and the family; None where there is no parser.

    A template that writes no calls says nothing: its model may know the form that most have.
    """
    if not written_call:
        return "qwen3", FAMILIES[DEFAULT]
    for mark, parser, family in _WRITTEN_CALLS:
        if mark in written_call:
            return parser, family
    return None, _OTHER


def with_hermes_calls(family: Family, *, has_token: bool) -> Family:
    """A family whose calls are text by the convention of Hermes; `has_token`: its tokenizer has their tags."""
    return replace(
        family,
        call_opening=_HERMES.call_opening,
        name_end=_HERMES.name_end,
        arguments_end="}\n" if has_token else "}\n</tool_call>",
        call_close=_HERMES.call_close if has_token else None,
        call_marks=("<tool_call>",),
        calls_are_text=False,
    )
