"""A position in tokens, and the pieces that all forms are made of: marks, words, types, attributes."""

from __future__ import annotations

import bisect
import re
from typing import Any

from weir.kernel_eval.ir.errors import LimitExceeded, Malformed, Unsupported
from weir.kernel_eval.ir.limits import ParseLimits
from weir.kernel_eval.ir.text.tokens import Token, tokens_of
from weir.kernel_eval.ir.types import FLOAT_BITS, INTEGER_BITS, Descriptor, Pointer, Scalar, Tensor, Type

_MAX_DEPTH = 16  # of types and attributes in each other
_SCALARS = {name: Scalar(name) for name in [*FLOAT_BITS, *INTEGER_BITS] if name != "index"}
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|[\\\"nt])")


class Cursor:
    """The tokens of a module, read from left to right."""

    def __init__(self, text: str, limits: ParseLimits) -> None:
        self.limits = limits
        self._line_ends = [match.start() for match in re.finditer("\n", text)]
        self._tokens = tokens_of(text, limits)
        self._next = 0

    @property
    def line(self) -> int:
        """The line of the next token."""
        return bisect.bisect_left(self._line_ends, self._tokens[self._next].at) + 1

    def malformed(self, expected: str) -> Malformed:
        """The error that something else was expected here."""
        found = self._tokens[self._next].text[:40] or "the end"
        return Malformed(f"line {self.line}: expected {expected}, found {found}")

    def peek(self, ahead: int = 0) -> Token:
        """A token that is not read yet."""
        return self._tokens[min(self._next + ahead, len(self._tokens) - 1)]

    def take(self, kind: str) -> str:
        """The text of the next token, which must be of this kind. Raises Malformed."""
        token = self._tokens[self._next]
        if token.kind != kind:
            raise self.malformed(f"a {kind}")
        self._next += 1
        return token.text

    def has(self, text: str) -> bool:
        """Read the next token if it is this mark or word."""
        token = self._tokens[self._next]
        if token.text == text and token.kind in ("mark", "word", "arrow"):
            self._next += 1
            return True
        return False

    def sees(self, text: str) -> bool:
        """Whether the next token is this mark or word."""
        token = self._tokens[self._next]
        return token.text == text and token.kind in ("mark", "word", "arrow")

    def expect(self, text: str) -> None:
        """Read this mark or word. Raises Malformed."""
        if not self.has(text):
            raise self.malformed(f"'{text}'")

    def one_of(self, names: frozenset[str], what: str) -> str:
        """A word of a set; Unsupported if it is another one. Raises Unsupported."""
        word = self.take("word")
        if word not in names:
            raise Unsupported(f"{what} {word}")
        return word

    def integer(self) -> int:
        """A decimal integer. Raises Malformed."""
        text = self.take("number")
        if not text.lstrip("-").isdecimal():
            raise self.malformed("an integer")
        return int(text)

    def string(self) -> str:
        """A quoted string, without its quotes and escapes."""

        def unescape(match: re.Match[str]) -> str:
            code = match.group(1)
            return chr(int(code, 16)) if len(code) == 2 else {"n": "\n", "t": "\t"}.get(code, code)

        return _ESCAPE.sub(unescape, self.take("string")[1:-1])

    def type(self, depth: int = 0) -> Type:
        """A type. Raises LimitExceeded, Malformed, Unsupported."""
        if depth > _MAX_DEPTH:
            raise LimitExceeded("nesting", f"line {self.line}: types nested too deeply")
        token = self.peek()
        if token.kind == "word" and token.text == "tensor":
            self.take("word")
            return self._tensor(depth)
        if token.kind == "word":
            kind = _SCALARS.get(token.text)
            if kind is None:
                raise Unsupported(f"type {token.text[:40]}")
            self.take("word")
            return kind
        if token.kind != "type":
            raise self.malformed("a type")
        self.take("type")
        if token.text == "!tt.ptr":
            return self.pointer_body(depth)
        if token.text == "!tt.tensordesc":
            return self.descriptor_body(depth)
        raise Unsupported(f"type {token.text[:40]}")

    def pointer_body(self, depth: int = 0) -> Pointer:
        """What stands after `!tt.ptr`. Raises Unsupported."""
        self.expect("<")
        pointee = self.type(depth + 1)
        if self.has(",") and self.integer() != 1:
            raise Unsupported("address space", "pointers into other memory than the global one")
        self.expect(">")
        return Pointer(pointee)

    def descriptor_body(self, depth: int = 0) -> Descriptor:
        """What stands after `!tt.tensordesc`: a tensor, or (3.8) its shape and element. Raises Malformed."""
        self.expect("<")
        if self.peek().kind == "dims":
            block: Type = self._dims(depth)
        else:
            block = self.type(depth + 1)
        self.expect(">")
        if not isinstance(block, Tensor) or not isinstance(block.element, Scalar):
            raise self.malformed("a tensor of numbers")
        return Descriptor(block)

    def _tensor(self, depth: int) -> Tensor:
        self.expect("<")
        tensor = self._dims(depth)
        if self.has(","):
            raise Unsupported("tensor encoding")
        self.expect(">")
        return tensor

    def _dims(self, depth: int) -> Tensor:
        dims = self.take("dims")
        if len(dims) > 120:
            raise LimitExceeded("tensor_elements", f"line {self.line}: too many dimensions")
        shape = tuple(int(size) for size in dims[:-1].split("x"))
        element = self.type(depth + 1)
        if not isinstance(element, Scalar | Pointer):
            raise self.malformed("a number or a pointer as element")
        numel = 1
        for size in shape:
            numel *= size
            if numel > self.limits.tensor_elements:
                allowed = self.limits.tensor_elements
                raise LimitExceeded("tensor_elements", f"line {self.line}: a tensor of more than {allowed} elements")
            if size & (size - 1):
                raise Malformed(f"line {self.line}: a tensor whose size is no power of two")
        return Tensor(shape, element)

    def types(self) -> tuple[Type, ...]:
        """One or more types, separated by commas."""
        found = [self.type()]
        while self.has(","):
            found.append(self.type())
        return tuple(found)

    def type_list(self) -> tuple[Type, ...]:
        """Types in parentheses, or one type without."""
        if not self.has("("):
            return (self.type(),)
        if self.has(")"):
            return ()
        found = self.types()
        self.expect(")")
        return found

    def attributes(self, opening: str = "{", closing: str = "}", depth: int = 0) -> dict[str, Any]:
        """A dictionary of attributes; empty if there is none. Raises Malformed."""
        found: dict[str, Any] = {}
        if not self.has(opening):
            return found
        if opening == "<":
            self.expect("{")
        while not self.sees("}"):
            if found:
                self.expect(",")
            name = self.string() if self.peek().kind == "string" else self.take("word")
            if name in found:
                raise self.malformed("an attribute that was not given before")
            found[name] = self._attribute(depth + 1) if self.has("=") else True
        self.expect("}")
        if opening == "<":
            self.expect(">")
        return found

    def _attribute(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise LimitExceeded("nesting", f"line {self.line}: attributes nested too deeply")
        token = self.peek()
        if token.kind == "string":
            return self.string()
        if token.kind == "number":
            return self._number()
        if token.kind == "symbol":
            return self.take("symbol")
        if self.sees("{"):
            return self.attributes(depth=depth)
        if self.has("["):
            items: list[Any] = []
            while not self.sees("]"):
                if items:
                    self.expect(",")
                items.append(self._attribute(depth + 1))
            self.expect("]")
            return items
        if self.has("true"):
            return True
        if self.has("false"):
            return False
        if self.has("array"):
            return self._array()
        if self.has("dense"):
            return self._dense_hint()
        if token.kind in ("type",) or token.text in _SCALARS or token.text == "tensor":
            return self.type()
        if token.kind == "word":
            return self.take("word")
        raise self.malformed("an attribute")

    def _number(self) -> int | float:
        text = self.take("number")
        if self.has(":"):
            self.type()
        try:
            return int(text, 0) if "." not in text else float(text)
        except ValueError:
            raise self.malformed("a number") from None

    def _dense_hint(self) -> tuple[int, ...]:
        """A small list of integers, as in `tt.divisibility = dense<[16, 1]> : tensor<2xi32>`."""
        self.expect("<")
        listed = self.has("[")
        found = [self.integer()]
        while listed and self.has(","):
            found.append(self.integer())
        if listed:
            self.expect("]")
        self.expect(">")
        self.expect(":")
        self.type()
        return tuple(found)

    def _array(self) -> tuple[Any, ...]:
        self.expect("<")
        self.take("word")
        found: list[Any] = []
        if self.has(":"):
            while not found or self.has(","):
                if self.sees("true") or self.sees("false"):
                    found.append(self.take("word") == "true")
                else:
                    found.append(self.integer())
        self.expect(">")
        return tuple(found)
