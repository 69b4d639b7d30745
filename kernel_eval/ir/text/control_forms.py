"""The forms of control flow, calls, and what a kernel says about itself."""

from __future__ import annotations

from weir.kernel_eval.ir.module import Region
from weir.kernel_eval.ir.text.arithmetic_forms import Form
from weir.kernel_eval.ir.text.reader import Parsed, Reader
from weir.kernel_eval.ir.types import I1, I32, Scalar, Type, element_of

_AXES = ("x", "y", "z")


def _program(reader: Reader, name: str) -> Parsed:
    """`x : i32`."""
    axis = reader.cursor.one_of(frozenset(_AXES), "axis")
    reader.attributes()
    reader.cursor.expect(":")
    kind = reader.cursor.type()
    reader.require(kind == I32, "program numbers are i32")
    return Parsed(types=(kind,), attributes={"axis": _AXES.index(axis)})


def _for(reader: Reader, name: str) -> Parsed:
    """`%i = %low to %high step %s iter_args(%a = %b) -> (T) : i32 { … }`."""
    cursor = reader.cursor
    variable = cursor.take("value")
    cursor.expect("=")
    low = reader.value()
    cursor.expect("to")
    high = reader.value()
    cursor.expect("step")
    step = reader.value()
    names, carried, kinds = _initial(reader) if cursor.has("iter_args") else ([], (), ())
    if carried:
        cursor.expect("->")
        kinds = cursor.type_list()
        reader.agree(carried, kinds)
    kind: Type = cursor.type() if cursor.has(":") else I32
    reader.require(isinstance(kind, Scalar) and not kind.is_float, "a loop counts integers")
    reader.agree((low, high, step), (kind,) * 3)
    region = reader.region(((variable, kind), *zip(names, kinds, strict=True)))
    _check_end(reader, region, "scf.yield", kinds)
    attributes = reader.attributes("tt.num_stages")
    return Parsed(operands=(low, high, step, *carried), types=kinds, attributes=attributes, regions=(region,))


def _initial(reader: Reader) -> tuple[list[str], tuple[int, ...], tuple[Type, ...]]:
    """`(%a = %b, …)`: names in the loop, and the values that they start with."""
    cursor = reader.cursor
    names: list[str] = []
    values: list[int] = []
    cursor.expect("(")
    while not cursor.has(")"):
        if names:
            cursor.expect(",")
        names.append(cursor.take("value"))
        cursor.expect("=")
        values.append(reader.value())
    return names, tuple(values), tuple(reader.types[value] for value in values)


def _while(reader: Reader, name: str) -> Parsed:
    """`(%a = %b) : (T) -> U { … scf.condition(%c) … } do { ^bb0(%d: U): … scf.yield … }`."""
    cursor = reader.cursor
    names, carried, given = _initial(reader) if cursor.sees("(") else ([], (), ())
    cursor.expect(":")
    kinds = cursor.type_list()
    cursor.expect("->")
    results = cursor.type_list()
    reader.require(given == kinds, "types of scf.while")
    before = reader.region(tuple(zip(names, kinds, strict=True)))
    _check_end(reader, before, "scf.condition", (I1, *results))
    cursor.expect("do")
    after = reader.region(labelled=True)
    arguments = tuple(reader.types[argument] for argument in after.blocks[0].arguments)
    reader.require(arguments == results, "arguments of scf.while")
    _check_end(reader, after, "scf.yield", kinds)
    reader.attributes()
    return Parsed(operands=carried, types=results, regions=(before, after))


def _if(reader: Reader, name: str) -> Parsed:
    """`%c -> (T) { … } else { … }`."""
    cursor = reader.cursor
    condition = reader.value()
    kinds = cursor.type_list() if cursor.has("->") else ()
    reader.agree((condition,), (I1,))
    regions = [reader.region()]
    if cursor.has("else"):
        regions.append(reader.region())
    reader.require(not kinds or len(regions) == 2, "an scf.if with results has an else")
    for region in regions:
        _check_end(reader, region, "scf.yield", kinds)
    reader.attributes()
    return Parsed(operands=(condition,), types=kinds, regions=tuple(regions))


def _check_end(reader: Reader, region: Region, name: str, kinds: tuple[Type, ...]) -> None:
    """The only block of a region ends with an operation that gives values of these types, or with nothing."""
    reader.require(len(region.blocks) == 1, "structured control flow has one block")
    operations = region.blocks[0].operations
    if not kinds and not (operations and operations[-1].name == name):
        return
    reader.require(bool(operations) and operations[-1].name == name, f"a region that ends with {name}")
    given = tuple(reader.types[value] for value in operations[-1].operands)
    reader.require(given == kinds, f"{name} gives values of the written types")


def _values_with_types(reader: Reader) -> tuple[int, ...]:
    if reader.cursor.peek().kind != "value":
        return ()
    operands = reader.values()
    reader.attributes()
    reader.cursor.expect(":")
    reader.agree(operands, reader.cursor.types())
    return operands


def _yield(reader: Reader, name: str) -> Parsed:
    """`%a, %b : T, U`, or nothing."""
    return Parsed(operands=_values_with_types(reader))


def _condition(reader: Reader, name: str) -> Parsed:
    """`(%c) %a : T`."""
    (condition,) = reader.value_list()[:1]
    reader.agree((condition,), (I1,))
    return Parsed(operands=(condition, *_values_with_types(reader)))


def _target(reader: Reader) -> tuple[str, tuple[int, ...]]:
    """`^bb1(%a, %b : T, U)`."""
    cursor = reader.cursor
    label = cursor.take("label")
    values: tuple[int, ...] = ()
    if cursor.has("("):
        values = reader.values()
        cursor.expect(":")
        reader.agree(values, cursor.types())
        cursor.expect(")")
    return label, values


def _branch(reader: Reader, name: str) -> Parsed:
    """`^bb1(%a : T)`."""
    return Parsed(successors=(_target(reader),))


def _cond_branch(reader: Reader, name: str) -> Parsed:
    """`%c, ^bb1, ^bb2`."""
    condition = reader.value()
    reader.agree((condition,), (I1,))
    reader.cursor.expect(",")
    first = _target(reader)
    reader.cursor.expect(",")
    return Parsed(operands=(condition,), successors=(first, _target(reader)))


def _call(reader: Reader, name: str) -> Parsed:
    """`@f(%a) : (T) -> U`."""
    callee = reader.cursor.take("symbol")
    operands = reader.value_list()
    reader.attributes()
    reader.cursor.expect(":")
    kinds = reader.cursor.type_list()
    reader.cursor.expect("->")
    results = reader.cursor.type_list()
    reader.agree(operands, kinds)
    return Parsed(operands=operands, types=results, attributes={"callee": callee})


def _print(reader: Reader, name: str) -> Parsed:
    """`"text" {hex = false, isSigned = …} : %a, %b : T, U`; nothing is ever printed."""
    reader.cursor.string()
    reader.attributes("hex", "isSigned")
    if reader.cursor.has(":"):
        _values_with_types(reader)
    return Parsed()


def _assert(reader: Reader, name: str) -> Parsed:
    """`%c, "text" : T`."""
    condition = reader.value()
    reader.cursor.expect(",")
    reader.cursor.string()
    reader.attributes()
    reader.cursor.expect(":")
    kind = reader.cursor.type()
    reader.agree((condition,), (kind,))
    reader.require(element_of(kind) == I1, "tt.assert takes i1")
    return Parsed(operands=(condition,))


def _assume(reader: Reader, name: str) -> Parsed:
    """`%c : i1`; a promise to the compiler."""
    condition = reader.value()
    reader.cursor.expect(":")
    kind = reader.cursor.type()
    reader.agree((condition,), (kind,))
    reader.require(element_of(kind) == I1, "llvm.intr.assume takes i1")
    return Parsed(operands=(condition,))


def _barrier(reader: Reader, name: str) -> Parsed:
    """Between threads of one program, so without effect here."""
    while reader.cursor.peek().kind == "word" and reader.cursor.peek().text in ("all", "local", "global_read"):
        reader.cursor.take("word")
    reader.attributes()
    return Parsed()


FORMS: dict[str, Form] = {
    "tt.get_program_id": _program,
    "tt.get_num_programs": _program,
    "scf.for": _for,
    "scf.while": _while,
    "scf.if": _if,
    "scf.yield": _yield,
    "scf.condition": _condition,
    "tt.return": _yield,
    "tt.reduce.return": _yield,
    "tt.scan.return": _yield,
    "tt.map_elementwise.return": _yield,
    "cf.br": _branch,
    "cf.cond_br": _cond_branch,
    "tt.call": _call,
    "tt.print": _print,
    "tt.assert": _assert,
    "llvm.intr.assume": _assume,
    "ttg.barrier": _barrier,
    "ttg.local_barrier": _barrier,
    "gpu.barrier": _barrier,
}
