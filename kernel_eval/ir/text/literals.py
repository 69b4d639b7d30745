"""The values of `arith.constant`: one number, or the elements of a tensor."""

from __future__ import annotations

import binascii
from typing import Any

from weir.kernel_eval.ir.errors import Unsupported
from weir.kernel_eval.ir.module import Bits
from weir.kernel_eval.ir.text.cursor import Cursor
from weir.kernel_eval.ir.text.reader import Parsed, Reader
from weir.kernel_eval.ir.types import I1, Scalar, Tensor, Type, element_of

_MAX_DEPTH = 8


def constant(reader: Reader, name: str) -> Parsed:
    """`5 : i32`, `true`, `dense<0.000000e+00> : tensor<4xf32>`, `dense<[1, 2]> : …`, `dense<"0x…"> : …`.

    The attribute `value` is one number for all elements, a flat list of numbers, or the bytes of the elements; floats
    that are written in hexadecimal are given as `Bits`.
    """
    cursor = reader.cursor
    reader.attributes()
    if cursor.sees("true") or cursor.sees("false"):
        value = cursor.take("word") == "true"
        kind: Type = cursor.type() if cursor.has(":") else I1
        reader.require(kind == I1, "true and false are i1")
        return Parsed(types=(I1,), attributes={"value": int(value)})
    if not cursor.has("dense"):
        text = cursor.take("number")
        cursor.expect(":")
        kind = cursor.type()
        reader.require(isinstance(kind, Scalar), "a constant is a number")
        return Parsed(types=(kind,), attributes={"value": number_of(reader, text, element_of(kind))})
    cursor.expect("<")
    found = _elements(cursor, 0)
    cursor.expect(">")
    cursor.expect(":")
    kind = cursor.type()
    reader.require(isinstance(kind, Tensor) and isinstance(kind.element, Scalar), "a dense constant is a tensor")
    assert isinstance(kind, Tensor) and isinstance(kind.element, Scalar)
    if isinstance(found, bytes):
        element = kind.element
        expected = kind.numel * element.size if element != I1 else -1
        reader.require(len(found) == expected, f"bytes of {kind.numel} elements")
        return Parsed(types=(kind,), attributes={"value": found})
    if isinstance(found, str):
        return Parsed(types=(kind,), attributes={"value": number_of(reader, found, kind.element)})
    flat = _flatten(reader, found, kind.shape)
    values = [number_of(reader, text, kind.element) for text in flat]
    return Parsed(types=(kind,), attributes={"value": values})


def number_of(reader: Reader, text: str, kind: Type) -> int | float | Bits:
    """The value of a literal. A float's hexadecimal literal gives its bits. Raises Unsupported."""
    if not isinstance(kind, Scalar):
        raise Unsupported(f"constant of type {kind}")
    if text in ("true", "false"):
        reader.require(kind == I1, "true and false are i1")
        return int(text == "true")
    if kind.is_float:
        if "x" in text:
            reader.require(not text.startswith("-") and int(text, 16) < 1 << kind.bits, f"the bits of {kind}")
            return Bits(int(text, 16))
        reader.require("." in text, "a float has a decimal point")
        return float(text)
    reader.require("." not in text, "an integer has no decimal point")
    value = int(text, 0)
    reader.require(-(1 << kind.bits - 1) <= value < 1 << kind.bits, f"a number that fits {kind}")
    return (
        value - (1 << kind.bits) if kind != I1 and value >= 1 << kind.bits - 1 else value & 1 if kind == I1 else value
    )


def _elements(cursor: Cursor, depth: int) -> Any:
    """A literal's text, nested lists of them, or bytes."""
    if cursor.peek().kind == "string":
        text = cursor.string()
        if not text.startswith("0x"):
            raise cursor.malformed("hexadecimal digits")
        try:
            return binascii.unhexlify(text[2:])
        except binascii.Error:
            raise cursor.malformed("hexadecimal digits") from None
    if cursor.has("["):
        if depth > _MAX_DEPTH:
            raise cursor.malformed("fewer dimensions")
        items = [_elements(cursor, depth + 1)]
        while cursor.has(","):
            items.append(_elements(cursor, depth + 1))
        cursor.expect("]")
        return items
    if cursor.sees("true") or cursor.sees("false"):
        return cursor.take("word")
    return cursor.take("number")


def _flatten(reader: Reader, items: Any, shape: tuple[int, ...]) -> list[str]:
    reader.require(isinstance(items, list) == bool(shape), "a literal of the tensor's shape")
    if not shape:
        return [items]
    reader.require(len(items) == shape[0], "a literal of the tensor's shape")
    return [text for item in items for text in _flatten(reader, item, shape[1:])]
