"""Answers as pages: Jinja templates that escape everything, and the filters by which they show values.

Invariant: no template marks a value as safe, except highlighted code, whose every piece Pygments escapes.
"""

from __future__ import annotations

import datetime
import functools
import math
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound
from starlette.responses import HTMLResponse, Response

CODE_CHARACTERS = 200_000  # longer code is shown without colours

_FOLDER = Path(__file__).parent.parent / "templates"
_FORMATTER = HtmlFormatter(nowrap=True)


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
        }
        self._environment.globals["store"] = title

    def page(self, template: str, values: Mapping[str, Any], status: int = 200) -> HTMLResponse:
        """A page by its template."""
        return HTMLResponse(self._environment.get_template(template).render(values), status)


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
    if len(text) > CODE_CHARACTERS:
        return escape(text)
    return Markup(highlight(text, _lexer(language or "python"), _FORMATTER))


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
