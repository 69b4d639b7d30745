"""Cuts the text of a module into tokens. Locations and comments are left out.

Invariant: where MLIR's own parser reads an operation, so does this one. Carriage returns, which end MLIR's comments,
are refused.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from weir.kernel_eval.ir.errors import LimitExceeded, Malformed, Unsupported
from weir.kernel_eval.ir.limits import ParseLimits


class Token(NamedTuple):
    """kind: value, symbol, label, string, dims, number, type, word, arrow, mark or end."""

    kind: str
    text: str
    at: int


_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\n]+|//[^\n\r]*)
  | (?P<value>%[A-Za-z0-9_$.-]+(?:\#[0-9]+)?)
  | (?P<symbol>@(?:[A-Za-z0-9_$.-]+|"[^"\\\n]*"))
  | (?P<label>\^[A-Za-z0-9_$.-]+)
  | (?P<string>"(?:[^"\\\n]|\\[0-9A-Fa-f]{2}|\\[\\"nt])*")
  | (?P<dims>(?:[1-9][0-9]*x)+(?=[!a-z]))
  | (?P<number>-?0x[0-9A-Fa-f]+|-?[0-9]+(?:\.[0-9]*(?:[eE][-+]?[0-9]+)?)?)
  | (?P<type>![A-Za-z_][A-Za-z0-9_.]*)
  | (?P<alias>\#[A-Za-z_][A-Za-z0-9_.]*)
  | (?P<word>[A-Za-z_][A-Za-z0-9_.$]*)
  | (?P<arrow>->)
  | (?P<mark>[()\[\]{}<>,:=*])
    """,
    re.VERBOSE,
)
_MAX_NUMBER = 48  # characters


def tokens_of(text: str, limits: ParseLimits) -> list[Token]:
    """The tokens, with an end token. Raises Malformed for a character that starts none."""
    if len(text) > limits.text_bytes:
        raise LimitExceeded("text_bytes", f"the module has more than {limits.text_bytes} bytes of text")
    found: list[Token] = []
    at, end, match = 0, len(text), _TOKEN.match
    while at < end:
        piece = match(text, at)
        if piece is None:
            raise Malformed(f"line {line_of(text, at)}: a character that starts no token")
        kind = piece.lastgroup or ""
        if kind == "alias":
            at = _after_alias(text, at, piece.end(), piece.group())
            continue
        if kind == "word" and text.startswith("loc(", at):
            at = _after_parentheses(text, at + 3)
            continue
        if kind != "space":
            if kind == "number" and piece.end() - at > _MAX_NUMBER:
                raise Malformed(f"line {line_of(text, at)}: a number of more than {_MAX_NUMBER} characters")
            found.append(Token(kind, piece.group(), at))
        at = piece.end()
    found.append(Token("end", "", end))
    return found


def line_of(text: str, at: int) -> int:
    """The number of the line of a position, from 1. Slow: for messages."""
    return text.count("\n", 0, at) + 1


def _after_alias(text: str, start: int, at: int, name: str) -> int:
    """The position after the definition of a location; other aliases are refused."""
    definition = re.compile(r" = loc(?=\()").match(text, at)
    if not name.startswith("#loc") or definition is None:
        raise Unsupported(name, f"attribute alias on line {line_of(text, start)}")
    return _after_parentheses(text, definition.end())


_IN_LOCATION = re.compile(r'"(?:[^"\\\n]|\\.)*"|[()\r]|//')


def _after_parentheses(text: str, at: int) -> int:
    """The position after balanced parentheses, of which the first is at `at`."""
    depth = 0
    for piece in _IN_LOCATION.finditer(text, at):
        if piece.group() == "(":
            depth += 1
        elif piece.group() == ")":
            depth -= 1
            if depth == 0:
                return piece.end()
        elif not piece.group().startswith('"'):  # MLIR skips what follows, so that its location would end elsewhere
            raise Malformed(f"line {line_of(text, piece.start())}: a comment or a carriage return within a location")
    raise Malformed(f"line {line_of(text, at)}: a location that does not end")
