"""Bounds what a reply holds: a candidate chooses parts of messages and details, and replies go into prompts whole."""

from __future__ import annotations

from typing import Any

MAX_CHARS = 4000  # of one text
MAX_ITEMS = 64  # of one list or object
MAX_DEPTH = 6


def bounded_text(text: str, max_chars: int = MAX_CHARS) -> str:
    """The beginning and the end of a text that is too long, and how much was left out between them."""
    if len(text) <= max_chars:
        return text
    head, tail = max_chars * 3 // 4, max_chars // 4
    return f"{text[:head]}\n… {len(text) - head - tail} characters are left out …\n{text[-tail:]}"


def bounded(value: Any, depth: int = MAX_DEPTH) -> Any:
    """A JSON value with its texts, lists, objects and depth bounded; what is left out is said in its place."""
    if isinstance(value, str):
        return bounded_text(value)
    if isinstance(value, dict):
        if depth == 0:
            return f"an object of {len(value)} entries is left out"
        kept = {bounded_text(str(key), 200): bounded(item, depth - 1) for key, item in list(value.items())[:MAX_ITEMS]}
        return kept if len(value) <= MAX_ITEMS else {**kept, "left_out": len(value) - MAX_ITEMS}
    if isinstance(value, list | tuple):
        if depth == 0:
            return f"a list of {len(value)} items is left out"
        kept_items = [bounded(item, depth - 1) for item in value[:MAX_ITEMS]]
        left_out = len(value) - MAX_ITEMS
        return kept_items if left_out <= 0 else [*kept_items, f"{left_out} more are left out"]
    return value
