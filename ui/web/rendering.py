"""Answers as pages: Jinja templates that escape everything, and the filters by which they show values.

Invariants: no template marks a value as safe, except highlighted code, whose every piece Pygments escapes. Colours take
at most `COLOUR_S` of a page: some lexers need the square of the length of a text that a model can write.
"""

from __future__ import annotations

import datetime
import functools
import math
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup, escape
from pygments import format as formatted
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Text, _TokenType
from pygments.util import ClassNotFound
from starlette.responses import HTMLResponse, Response

from weir.ui.data.long_text import SHOWN_CHARACTERS
from weir.ui.web.addresses import call_address, session_address

CODE_CHARACTERS = 200_000  # longer code is shown without colours
COLOUR_S = 1.0  # CPU seconds of a page; the code after them is shown without colours

_FOLDER = Path(__file__).parent.parent / "templates"
_FORMATTER = HtmlFormatter(nowrap=True)
_colours_left_s: ContextVar[float] = ContextVar("colours_left_s", default=COLOUR_S)


class Pages:
    """The templates, with what each of them is given."""

    def __init__(self, title: str) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_FOLDER),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "number": number,
            "time": shown_time,
            "clock": clock,
            "seconds": seconds,
            "code": code,
            "query": query,
            "json": as_text,
            "session_address": session_address,
            "call_address": call_address,
        }
        self._environment.globals |= {"store": title, "shown_characters": SHOWN_CHARACTERS}

    def page(self, template: str, values: Mapping[str, Any], status: int = 200) -> HTMLResponse:
        """A page by its template."""
        begin_colours()
        return HTMLResponse(self._environment.get_template(template).render(values), status)


def begin_colours() -> None:
    """Give the page that is rendered next its time for colours."""
    _colours_left_s.set(COLOUR_S)


def as_json(values: Any, status: int = 200) -> Response:
    """Values as JSON; numbers that JSON has not are null, and what it has no form for is text."""
    return Response(msgspec.json.encode(values, enc_hook=str), status, media_type="application/json")


def number(value: Any, digits: int = 4) -> str:
    """A number for people: thousands separated, four significant digits; yes, no, and nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return str(value) if not math.isfinite(value) else f"{value:,.{digits}g}"
    return str(value)


def shown_time(value: datetime.datetime | None) -> str:
    """A time in UTC to the second."""
    return "" if value is None else value.strftime("%Y-%m-%d %H:%M:%S")


def clock(at: float) -> str:
    """Unix seconds as a time in UTC to the second."""
    return shown_time(datetime.datetime.fromtimestamp(at, datetime.UTC))


def seconds(value: float | None) -> str:
    """A duration in the unit that fits it."""
    if value is None:
        return ""
    for unit, length in (("h", 3600), ("min", 60)):
        if value >= 2 * length:
            return f"{value / length:.1f} {unit}"
    return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"


def code(text: str, language: str) -> Markup:
    """Code as spans with Pygments' classes; Python where the language is not named or not known."""
    left_s = _colours_left_s.get()
    if len(text) > CODE_CHARACTERS or left_s <= 0:
        return escape(text)
    began = time.thread_time()
    lines = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n") + "\n"  # as lexers want them
    coloured = formatted(_pieces(_lexer(language or "python"), lines, began + left_s), _FORMATTER)
    _colours_left_s.set(left_s - (time.thread_time() - began))
    return Markup(coloured)


def _pieces(lexer: Lexer, text: str, until: float) -> Iterator[tuple[_TokenType, str]]:
    """The pieces of a text with their kinds; what is left at this time of the thread's CPU clock is one piece."""
    for at, kind, piece in lexer.get_tokens_unprocessed(text):
        if time.thread_time() > until:
            yield Text, text[at:]
            return
        yield kind, piece


@functools.lru_cache(64)  # finding one takes longer than it needs for a short text
def _lexer(language: str) -> Lexer:
    try:
        return get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return get_lexer_by_name("text", stripnl=False)


def query(given: Mapping[str, Any], **changes: Any) -> str:
    """The parameters of an address with some of them changed; None removes one."""
    kept = {name: value for name, value in {**given, **changes}.items() if value not in (None, "")}
    return urllib.parse.urlencode(kept)


def as_text(value: Any) -> str:
    """A value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()
