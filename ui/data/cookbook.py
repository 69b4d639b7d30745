"""The questions of docs/cookbook.md, for the page of SQL. `cookbook.txt` is that page; the wheel has a copy."""

from __future__ import annotations

import functools
import re
from pathlib import Path

_FILE = Path(__file__).parent / "cookbook.txt"
_PART = re.compile(r"^## ([^\n]+)$|^### ([^\n]+)\n\n```sql\n(.*?)\n```$", re.MULTILINE | re.DOTALL)

Part = tuple[str, tuple[tuple[str, str], ...]]  # its title; questions and their SQL


@functools.cache
def cookbook() -> tuple[Part, ...]:
    """The parts of the cookbook in order."""
    parts: list[tuple[str, list[tuple[str, str]]]] = []
    for title, question, query in _PART.findall(_FILE.read_text()):
        if title:
            parts.append((title, []))
        else:
            parts[-1][1].append((question, query))
    return tuple((title, tuple(questions)) for title, questions in parts)
