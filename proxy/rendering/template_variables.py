"""Which wishes of agents a model's prompts can fulfil: the variables of its chat template, found by rendering probes.

A variable counts as known if the template (or the library's renderer) has it and its values change what is written.
Invariants: a value that the template refuses, or takes for any other, is not known; a renderer that writes otherwise
under a variable than the folder's own template does not know it. Whatever is not fulfilled is named in the record.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jinja2
import msgspec
from cachetools import LRUCache
from jinja2 import ext, meta, nodes, parser, sandbox

from weir.proxy.conversation.call_request import CallRequest, Message, Wish
from weir.proxy.rendering.chat_template import QUESTION

if TYPE_CHECKING:
    from weir.proxy.rendering.renderer import Rendering

Variables = Mapping[str, Any]
NO_VARIABLES: Variables = MappingProxyType({})

SWITCHES = ("enable_thinking", "thinking")
EFFORT, VERBOSITY = "reasoning_effort", "verbosity"
_VALUES = {
    EFFORT: ("none", "minimal", "low", "medium", "high", "xhigh", "max"),
    VERBOSITY: ("low", "medium", "high"),
}
_USUAL = frozenset({"low", "medium", "high"})  # all that is taken by a template that writes any value as it is
_NONSENSE = "probe-weir-value"
_OF_CALLERS = frozenset(
    {
        *("messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "tokenize"),
        *("bos_token", "eos_token", "unk_token", "pad_token", "raise_exception", "strftime_now", "namespace", "range"),
        *("chat_template", "conversations", "return_dict", "return_assistant_tokens_mask"),
    }
)
_LONGEST = 200  # characters of a value
_KEPT = 64  # renderings under variables
_SYSTEM: Message = {"role": "system", "content": "Be brief."}
_THOUGHT: Message = {"role": "assistant", "content": "One.", "reasoning_content": "Hm."}
_FURTHER: Message = {"role": "user", "content": "And two?"}
PROBES: tuple[list[Message], ...] = ([QUESTION], [_SYSTEM, QUESTION], [QUESTION, _THOUGHT, _FURTHER])

_encode = msgspec.json.Encoder(order="sorted").encode


class TemplateVariables:
    """The variables that a model's prompts know, and its renderings under them."""

    def __init__(
        self,
        names: frozenset[str],
        written: Callable[[Variables], tuple[str | None, ...] | None],
        build: Callable[[Variables], Rendering | None],
    ) -> None:
        """`names` are those that template or renderer have; `written` gives the probes under variables as text.

        Both callables give None where variables are refused.
        """
        self.names = names - _OF_CALLERS
        self.values = _values(self.names, written)
        self._written = written
        self._build = build
        self._lock = threading.Lock()
        self._built: LRUCache[bytes, Rendering | None] = LRUCache(_KEPT)

    def rendering(self, variables: Variables) -> Rendering | None:
        """The rendering under variables; None where they are refused."""
        name = _encode(variables)
        with self._lock:
            if name not in self._built:
                self._built[name] = self._build(variables) if self._written(variables) is not None else None
            return self._built[name]

    def fulfilled(self, request: CallRequest) -> CallRequest:
        """The request with the variables of its wishes, and with the paths of those that are not fulfilled.

        Of wishes that contradict each other the first one counts.
        """
        variables: dict[str, Any] = {}
        ignored = []
        for wish in request.wishes:
            chosen = next((one for one in wish.variables if self._takes(wish, *one, variables)), None)
            if chosen is None:
                ignored.append(wish.where)
            else:
                variables[chosen[0]] = chosen[1]
        return msgspec.structs.replace(
            request, template_variables=variables, ignored_fields=(*request.ignored_fields, *ignored)
        )

    def fact(self) -> str:
        """What it fulfils, for people."""
        switches = [name for name in SWITCHES if name in self.values]
        named = [f"{name} = {', '.join(self.values[name])}" for name in (EFFORT, VERBOSITY) if name in self.values]
        others = sorted(self.names - self.values.keys())
        known = [*(f"thinking on and off ({name})" for name in switches), *named]
        if others:
            known.append(f"chat_template_kwargs: {', '.join(others)}")
        rest = "others are recorded in ignored_fields"
        return f"{'; '.join(known)}; {rest}" if known else "none is known to the template; they are recorded"

    def _takes(self, wish: Wish, name: str, value: Any, variables: Variables) -> bool:
        if name in variables:
            return bool(_encode(variables[name]) == _encode(value))
        if not wish.names_variable:
            known = any(value == one and type(value) is type(one) for one in self.values.get(name, ()))
        else:
            known = name in self.names and _is_plain(value)
        return known and self.rendering({**variables, name: value}) is not None


def template_names(source: str | None) -> frozenset[str]:
    """The variables that a chat template reads without setting them; none where it cannot be read."""
    environment = sandbox.ImmutableSandboxedEnvironment(extensions=[_Generation, ext.loopcontrols])
    try:
        return frozenset(meta.find_undeclared_variables(environment.parse(source or "")))
    except jinja2.TemplateError:
        return frozenset()


class _Generation(ext.Extension):
    """The tag around what a model generates, which transformers adds to Jinja."""

    tags = {"generation"}  # noqa: RUF012  # declared by the base class

    def parse(self, reader: parser.Parser) -> list[nodes.Node]:
        next(reader.stream)
        return reader.parse_statements(("name:endgeneration",), drop_needle=True)


def _values(
    names: frozenset[str], written: Callable[[Variables], tuple[str | None, ...] | None]
) -> dict[str, tuple[Any, ...]]:
    """The values that change what is written, by variable."""
    values: dict[str, tuple[Any, ...]] = {}
    for name in SWITCHES:
        if name in names:
            on, off = written({name: True}), written({name: False})
            if on is not None and off is not None and on != off:
                values[name] = (True, False)
    for name, usual in _VALUES.items():
        taken = _words(name, usual, written) if name in names else ()
        if taken:
            values[name] = taken
    return values


def _words(
    name: str, usual: tuple[str, ...], written: Callable[[Variables], tuple[str | None, ...] | None]
) -> tuple[str, ...]:
    """Those words that a variable takes and tells from a word that means nothing."""
    nonsense = written({name: _NONSENSE})
    is_copied = nonsense is not None and any(_NONSENSE in (text or "").lower() for text in nonsense)
    texts = {word: written({name: word}) for word in usual if word in _USUAL or not is_copied}
    taken = tuple(word for word, text in texts.items() if text is not None and text != nonsense)
    return taken if len({nonsense, written({}), *(texts[word] for word in taken)} - {None}) > 1 else ()


def _is_plain(value: Any) -> bool:
    """Whether a value is a short one without parts."""
    return isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= _LONGEST)
