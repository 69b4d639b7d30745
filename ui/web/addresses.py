"""Where a session or a call is shown: its id is a part of the path, or a parameter where a path would not keep it.

Browsers and servers between them take `..` and doubled slashes out of a path, and one that ends in `.json` is the data
of the page before it.
"""

from __future__ import annotations

import re
import urllib.parse

_KEPT = re.compile(r"(?!\.)[A-Za-z0-9._~:@+=,-]+(?<!\.json)")


def session_address(session_id: str, end: str = "") -> str:
    """The page of a session, with `end` (such as `.json`) after its path."""
    return _address("session", session_id, end)


def call_address(call_id: str, end: str = "") -> str:
    """The page of a call, with `end` (such as `/tokens.json`) after its path."""
    return _address("call", call_id, end)


def _address(kind: str, name: str, end: str) -> str:
    if _KEPT.fullmatch(name):
        return f"/{kind}s/{name}{end}"
    return f"/{kind}{end}?id={urllib.parse.quote(name, safe='')}"
