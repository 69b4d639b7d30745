"""Reads the text of a module of TTIR, strictly: what is not known is refused, never skipped.

The text is data: nothing of it is imported or evaluated. Raises Malformed, Unsupported and LimitExceeded.
"""

from __future__ import annotations

from typing import Any

from weir.kernel_eval.ir.errors import Malformed, Unsupported
from weir.kernel_eval.ir.limits import ParseLimits
from weir.kernel_eval.ir.module import Function, Module
from weir.kernel_eval.ir.text import arithmetic_forms, control_forms, memory_forms, tensor_forms
from weir.kernel_eval.ir.text.cursor import Cursor
from weir.kernel_eval.ir.text.liveness import mark_dead
from weir.kernel_eval.ir.text.reader import Reader
from weir.kernel_eval.ir.types import Type

_FORMS = arithmetic_forms.FORMS | tensor_forms.FORMS | memory_forms.FORMS | control_forms.FORMS


def parse(text: str, limits: ParseLimits | None = None) -> Module:
    """The module of a text, as Triton prints it after its stage `ttir`, with or without locations.

    Raises Malformed, Unsupported.
    """
    cursor = Cursor(text, limits or ParseLimits())
    cursor.expect("module")
    if cursor.has("attributes"):
        for name in cursor.attributes():
            raise Unsupported(f"attribute {name[:40]}", "of the module")
    cursor.expect("{")
    functions: dict[str, Function] = {}
    done = 0
    while not cursor.has("}"):
        function, done = _function(cursor, done)
        if function.name in functions:
            raise Malformed(f"the function {function.name[:60]} is defined twice")
        functions[function.name] = function
    cursor.take("end")
    public = [function for function in functions.values() if function.public]
    if len(public) != 1:
        raise Malformed(f"a module has one kernel, this one has {len(public)}")
    return Module(functions, public[0], done)


def _function(cursor: Cursor, done: int) -> tuple[Function, int]:
    cursor.expect("tt.func")
    public = cursor.one_of(frozenset({"public", "private"}), "visibility") == "public"
    name = cursor.take("symbol")
    names, kinds, attributes = _parameters(cursor)
    results = cursor.type_list() if cursor.has("->") else ()
    reader = Reader(cursor, _FORMS, done)
    if cursor.has("attributes"):
        reader.attributes()
    body = reader.region(tuple(zip(names, kinds, strict=True)))
    function = Function(
        name,
        public,
        tuple(name[1:] for name in names),
        body.blocks[0].arguments,
        results,
        reader.types,
        body,
        attributes,
    )
    mark_dead(function)
    return function, reader.operations


def _parameters(cursor: Cursor) -> tuple[list[str], list[Type], tuple[dict[str, Any], ...]]:
    names: list[str] = []
    kinds: list[Type] = []
    attributes = []
    cursor.expect("(")
    while not cursor.has(")"):
        if names:
            cursor.expect(",")
        names.append(cursor.take("value"))
        cursor.expect(":")
        kinds.append(cursor.type())
        attributes.append(cursor.attributes())
    return names, kinds, tuple(attributes)
