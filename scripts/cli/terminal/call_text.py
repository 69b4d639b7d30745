"""A call of a tree in a few lines: its cost, how its prompt was made, new messages, and its answer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from weir.scripts.cli.terminal.call_messages import Line, answer_lines, new_lines
from weir.scripts.cli.terminal.result_output import FILE_WIDTH, printable

if TYPE_CHECKING:
    from rich.console import Console

LINE_CHARACTERS = 96
NEW_LINES = 6  # characters of new messages in a tree that is not shown in full
_COLOURS = {"stop": "green", "length": "yellow", "abort": "red", "disconnect": "red", "error": "red"}
_OF_LINES = {"says": "", "calls": "cyan", "thinks": "dim italic"}


def call_text(call: dict[str, Any], is_head: bool, whole_text: bool) -> str:
    """The call in rich markup; `is_head` where it does not continue the call above it."""
    new = new_lines(json.loads(call["request"]) if call["request"] else None)
    lines = new if whole_text else _shortened(new)
    lines += answer_lines(json.loads(call["answer"]) if call["answer"] else None)
    return "\n".join([_head(call, is_head), *(_line(line, whole_text) for line in lines)])


def _head(call: dict[str, Any], is_head: bool) -> str:
    cached = f", {call['cached_tokens']:,} cached" if call["cached_tokens"] else ""
    parts = [
        f"[bold]{call['role']}[/] [{_COLOURS.get(call['finish'], 'white')}]{call['finish']}[/]",
        f"{call['num_prompt_tokens']:,} (+{call['num_new_tokens']:,}{cached}) → {call['num_output_tokens']:,} tokens",
        f"[cyan]{spans_text(call['spans'])}[/]",
    ]
    if call["label"] is not None:
        link = f" of {call['linked_call']}" if call["linked_call"] else ""
        parts.append(f"[magenta]{call['label']}{link}[/] [dim]({call['label_rule']})[/]")
    if call["held_ms"]:
        parts.append(f"held {call['held_ms'] / 1000:.3g} s")
    if call["stitch"] not in (None, "bridged", "new_root"):
        parts.append(f"[yellow]{stitch_text(call)}[/]")
    if call["retry_count"]:
        parts.append(f"tried {call['retry_count'] + 1} times")
    if call["reward"] is not None:
        parts.append(f"reward {call['reward']:.3g}")
    parts += [f"[red]{plain(call[name])}[/]" for name in ("fault", "error") if call[name]]
    if call["ambiguous"]:
        parts.append("[yellow]ambiguous parent[/]")
    if is_head and call["role"] == "turn":
        parts.append(f"continues {call['parent_call']} of another session")
    if call["level"] != "tokens":
        parts.append(f"level {call['level']}")
    return "  ".join(parts) + f"  [dim]{call['call_id']}[/]"


def stitch_text(call: dict[str, Any]) -> str:
    """How the prompt was made, and its first difference from the call that it was compared with."""
    at = "" if call["stitch_differs_at"] is None else f", differs at {call['stitch_differs_at']:,}"
    return f"{call['stitch']}{at}"


def spans_text(spans: list[dict[str, Any]]) -> str:
    """The weight versions of a call: `v3`, or `v3:0-17 v4:17-40` where it spans several."""
    if len(spans) == 1:
        return f"v{plain(spans[0]['label'])}"
    return " ".join(f"v{plain(span['label'])}:{span['start']}-{span['end']}" for span in spans)


def _shortened(lines: list[Line]) -> list[Line]:
    if len(lines) <= NEW_LINES:
        return list(lines)
    half = NEW_LINES // 2
    return [*lines[:half], Line("…", f"{len(lines) - NEW_LINES} more"), *lines[-half:]]


def _line(line: Line, whole_text: bool) -> str:
    style = _OF_LINES.get(line.who, "blue")
    text = line.text.strip() if whole_text else one_line(line.text)
    said = "\n       ".join(plain(text).splitlines())
    return f"[dim]{line.who:6}[/] [{style}]{said}[/]" if style else f"[dim]{line.who:6}[/] {said}"


def one_line(text: str) -> str:
    """The beginning of a text on one line, with its length where that is not all."""
    flat = " ".join(text.split())
    return flat if len(flat) <= LINE_CHARACTERS else f"{flat[:LINE_CHARACTERS]}… ({len(text):,} characters)"


def plain(text: str) -> str:
    """Text with rich markup escaped and control characters replaced."""
    from rich.markup import escape

    return escape(printable(text))


def console_for_text() -> Console:
    """A console of the terminal's width; unlimited line length elsewhere."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=FILE_WIDTH)


def joined(lines: Iterable[Line]) -> str:
    """Whole texts as rich markup."""
    return "\n".join(_line(line, whole_text=True) for line in lines)
