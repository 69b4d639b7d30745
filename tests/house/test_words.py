"""Phrases that pages, docstrings and comments do without: each has a plain one in its place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support_house import CODE, PAGES, ROOT, prose_of

PLAIN = {
    r"of late": "recently",
    r"is told": "receives, is informed",
    r"word on": "message about",
    r"mend(s|ed|ing)?": "fix, repair",
    r"(hold|holds|held) against": "compare with",
    r"goes on": "continues, resumes",
    r"whereabouts": "location",
}


def phrases(text: str) -> list[str]:
    return [phrase for phrase in PLAIN if re.search(rf"\b{phrase}\b", text, re.IGNORECASE)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_in_plain_words(page: Path) -> None:
    assert not phrases(page.read_text())


def test_docstrings_and_comments_are_in_plain_words() -> None:
    own = Path(__file__)
    wrong = [
        f"{path.relative_to(ROOT)}:{line} {phrase}: {PLAIN[phrase]}"
        for path in CODE
        if path != own
        for line, text in prose_of(path)
        for phrase in phrases(text)
    ]
    assert not wrong, "\n".join(wrong)
