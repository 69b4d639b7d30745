"""Code in colours, which take a bounded time whatever a model wrote."""

from __future__ import annotations

import html
import re

import pytest

from weir.ui.web import rendering
from weir.ui.web.rendering import code


def shown(markup: str) -> str:
    """The text that a browser shows."""
    return html.unescape(re.sub("<[^>]*>", "", markup))


def test_code_is_coloured_and_stays_the_text_that_it_was() -> None:
    rendering.begin_colours()
    text = 'def kernel(x):\r\n    return "<b>" if x else 1'
    found = code(text, "python")
    assert '<span class="k">def</span>' in found and "<b>" not in found
    assert shown(found) == text.replace("\r\n", "\n") + "\n"


def test_code_is_shown_without_colours_from_where_their_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(rendering.time, "thread_time", lambda: next(clock) / 1000)
    monkeypatch.setattr(rendering, "COLOUR_S", 0.01)
    rendering.begin_colours()
    text = "x = 1\n" * 100
    first, second = code(text, "python"), code(text, "python")
    assert shown(first) == text and 0 < first.count("<span") < 20
    assert shown(second) == text and "<span" not in second
    rendering.begin_colours()
    assert "<span" in code(text, "python")
