"""The forms of `arith`, `math` and the elementwise operations of `tt`, with the types that each allows."""

from __future__ import annotations

from collections.abc import Callable

from weir.kernel_eval.ir.errors import Unsupported
from weir.kernel_eval.ir.text.literals import constant
from weir.kernel_eval.ir.text.reader import Parsed, Reader
from weir.kernel_eval.ir.types import I1, Pointer, Scalar, Tensor, Type, element_of, shape_of, with_element

Form = Callable[[Reader, str], Parsed]

_INTEGER_BINARY = frozenset(
    [
        *("addi", "subi", "muli", "divsi", "divui", "remsi", "remui", "ceildivsi", "ceildivui", "floordivsi"),
        *("andi", "ori", "xori", "shli", "shrsi", "shrui", "maxsi", "maxui", "minsi", "minui"),
    ]
)
_FLOAT_BINARY = frozenset(
    [
        *("addf", "subf", "mulf", "divf", "remf", "maximumf", "minimumf", "maxnumf", "minnumf"),
    ]
)
_FLOAT_UNARY = frozenset(
    [
        *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos"),
        *("atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sqrt", "rsqrt", "cbrt", "erf", "erfc"),
        *("floor", "ceil", "trunc", "round", "roundeven", "absf"),
    ]
)
_INTEGER_UNARY = frozenset(["absi", "ctlz", "cttz", "ctpop"])
_FLAGS = frozenset({"fastmath", "overflow"})
_RELATIONS = {
    "arith.cmpi": frozenset(
        [
            *("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"),
        ]
    ),
    "arith.cmpf": frozenset(
        [
            *("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une"),
            *("uno", "true"),
        ]
    ),
}
_CASTS = {  # from what, to what
    **dict.fromkeys(("extsi", "extui", "trunci"), ("integer", "integer")),
    **dict.fromkeys(("sitofp", "uitofp"), ("integer", "float")),
    **dict.fromkeys(("fptosi", "fptoui"), ("float", "integer")),
    **dict.fromkeys(("extf", "truncf"), ("float", "float")),
    "bitcast": ("number", "number"),
}


def is_kind(kind: Type, wanted: str) -> bool:
    """Whether a type, or the elements of a tensor, are integers, floats, numbers or pointers."""
    element = element_of(kind)
    if wanted == "pointer":
        return isinstance(element, Pointer)
    return isinstance(element, Scalar) and (wanted == "number" or element.is_float == (wanted == "float"))


def _skip_flags(reader: Reader) -> None:
    cursor = reader.cursor
    while cursor.peek().kind == "word" and cursor.peek().text in _FLAGS:
        cursor.take("word")
        cursor.expect("<")
        while cursor.peek().kind == "word":
            cursor.take("word")
            cursor.has(",")
        cursor.expect(">")


def elementwise(arity: int, wanted: str) -> Form:
    """`%a, %b : T`, where the operands and the result have type T."""

    def form(reader: Reader, name: str) -> Parsed:
        operands = reader.values()
        _skip_flags(reader)
        attributes = reader.attributes()
        reader.cursor.expect(":")
        kind = reader.cursor.type()
        reader.require(len(operands) == arity and is_kind(kind, wanted), f"{name} takes {arity} {wanted} operands")
        reader.agree(operands, (kind,) * arity)
        return Parsed(operands=operands, types=(kind,), attributes=attributes)

    return form


def compare(reader: Reader, name: str) -> Parsed:
    """`slt, %a, %b : T`."""
    relation = reader.cursor.one_of(_RELATIONS[name], name)
    reader.cursor.expect(",")
    operands = reader.values()
    _skip_flags(reader)
    reader.attributes()
    reader.cursor.expect(":")
    kind = reader.cursor.type()
    wanted = "integer" if name == "arith.cmpi" else "float"
    reader.require(len(operands) == 2 and is_kind(kind, wanted), f"{name} compares two {wanted} operands")
    reader.agree(operands, (kind, kind))
    return Parsed(operands=operands, types=(with_element(kind, I1),), attributes={"relation": relation})


def select(reader: Reader, name: str) -> Parsed:
    """`%c, %a, %b : tensor<4xi1>, tensor<4xf32>`, or `: T` where the condition is one `i1`."""
    operands = reader.values()
    reader.attributes()
    reader.cursor.expect(":")
    kinds = reader.cursor.types()
    reader.require(len(operands) == 3 and len(kinds) <= 2, "arith.select takes three operands")
    condition = kinds[0] if len(kinds) == 2 else I1
    reader.require(condition in (I1, with_element(kinds[-1], I1)), "arith.select chooses by i1")
    reader.agree(operands, (condition, kinds[-1], kinds[-1]))
    return Parsed(operands=operands, types=(kinds[-1],))


def cast(reader: Reader, name: str) -> Parsed:
    """`%a : T to U`. Raises Unsupported."""
    operand = reader.value()
    if reader.cursor.peek().kind == "word" and reader.cursor.peek().text not in _FLAGS:
        raise Unsupported(f"{name} {reader.cursor.take('word')[:40]}")
    _skip_flags(reader)
    reader.attributes()
    reader.cursor.expect(":")
    source = reader.cursor.type()
    reader.cursor.expect("to")
    target = reader.cursor.type()
    wanted = _CASTS[name.removeprefix("arith.")]
    reader.require(is_kind(source, wanted[0]) and is_kind(target, wanted[1]), f"{name} of such types")
    _same_shape(reader, source, target)
    reader.agree((operand,), (source,))
    bits, new_bits = element_of(source).bits, element_of(target).bits  # type: ignore[union-attr]
    grows = {"extsi": True, "extui": True, "extf": True, "trunci": False, "truncf": False}.get(name[6:])
    reader.require(grows is None or ((new_bits > bits) == grows and new_bits != bits), f"{name} of such widths")
    reader.require(name != "arith.bitcast" or bits == new_bits, "arith.bitcast between widths")
    return Parsed(operands=(operand,), types=(target,))


def _same_shape(reader: Reader, source: Type, target: Type) -> None:
    alike = shape_of(source) == shape_of(target) and isinstance(source, Tensor) == isinstance(target, Tensor)
    reader.require(alike, "both types have the same shape")


def convert(reader: Reader, name: str) -> Parsed:
    """`%a : T -> U`, and `%a, rounding = rtne : T -> U`. Raises Unsupported."""
    operand = reader.value()
    attributes = {}
    if reader.cursor.has(","):
        reader.cursor.expect("rounding")
        reader.cursor.expect("=")
        attributes["rounding"] = reader.cursor.one_of(frozenset({"rtne", "rtz"}), "rounding")
    reader.attributes()
    reader.cursor.expect(":")
    source = reader.cursor.type()
    reader.cursor.expect("->")
    target = reader.cursor.type()
    reader.agree((operand,), (source,))
    _same_shape(reader, source, target)
    if name == "tt.fp_to_fp":
        allowed = is_kind(source, "float") and is_kind(target, "float")
    elif name == "tt.ptr_to_int":
        allowed = is_kind(source, "pointer") and element_of(target) == Scalar("i64")
    elif name == "tt.int_to_ptr":
        raise Unsupported(name, "addresses made of numbers; pass the tensor itself")
    else:
        pointers = is_kind(source, "pointer") and is_kind(target, "pointer")
        numbers = is_kind(source, "number") and is_kind(target, "number")
        allowed = pointers or (numbers and element_of(source).bits == element_of(target).bits)  # type: ignore[union-attr]
    reader.require(allowed, f"{name} of such types")
    return Parsed(operands=(operand,), types=(target,), attributes=attributes)


def clamp(reader: Reader, name: str) -> Parsed:
    """`%x, %low, %high, propagateNan = none : T`."""
    operands = [reader.value()]
    while reader.cursor.has(",") and not reader.cursor.sees("propagateNan"):
        operands.append(reader.value())
    reader.cursor.expect("propagateNan")
    reader.cursor.expect("=")
    propagate = reader.cursor.one_of(frozenset({"none", "all"}), "propagateNan")
    reader.attributes()
    reader.cursor.expect(":")
    kind = reader.cursor.type()
    reader.require(len(operands) == 3 and is_kind(kind, "float"), "tt.clampf takes three floats")
    reader.agree(tuple(operands), (kind,) * 3)
    return Parsed(operands=tuple(operands), types=(kind,), attributes={"propagate": propagate == "all"})


def extern(reader: Reader, name: str) -> Parsed:
    """`%a {symbol = "__nv_tanhf", …} : (T) -> T`: a function of the device's library."""
    operands = reader.values()
    attributes = reader.attributes("libname", "libpath", "pure", "symbol")
    reader.cursor.expect(":")
    kinds = reader.cursor.type_list()
    reader.cursor.expect("->")
    result = reader.cursor.type()
    reader.agree(operands, kinds)
    for kind in kinds:
        reader.require(is_kind(kind, "number"), "tt.extern_elementwise takes numbers")
        _same_shape(reader, kind, result)
    symbol = attributes.get("symbol")
    reader.require(isinstance(symbol, str) and is_kind(result, "number"), "tt.extern_elementwise has a symbol")
    return Parsed(operands=operands, types=(result,), attributes={"symbol": symbol})


def extended(reader: Reader, name: str) -> Parsed:
    """`%a, %b : T`, with two results."""
    operands = reader.values()
    reader.attributes()
    reader.cursor.expect(":")
    kinds = reader.cursor.types()
    kind = kinds[0]
    carry = with_element(kind, I1) if name == "arith.addui_extended" else kind
    reader.require(len(operands) == 2 and is_kind(kind, "integer"), f"{name} takes two integers")
    reader.require(len(kinds) == 1 or kinds[1:] == (carry,), f"{name} of such types")
    reader.agree(operands, (kind, kind))
    return Parsed(operands=operands, types=(kind, carry))


def poison(reader: Reader, name: str) -> Parsed:
    """`: T`."""
    reader.cursor.expect(":")
    return Parsed(types=(reader.cursor.type(),))


FORMS: dict[str, Form] = {
    **{f"arith.{name}": elementwise(2, "integer") for name in _INTEGER_BINARY},
    **{f"arith.{name}": elementwise(2, "float") for name in _FLOAT_BINARY},
    **{f"math.{name}": elementwise(1, "float") for name in _FLOAT_UNARY},
    **{f"math.{name}": elementwise(1, "integer") for name in _INTEGER_UNARY},
    **{f"arith.{name}": cast for name in _CASTS},
    **{f"tt.{name}": convert for name in ("fp_to_fp", "bitcast", "ptr_to_int", "int_to_ptr")},
    **{f"arith.{name}": extended for name in ("addui_extended", "mulsi_extended", "mului_extended")},
    "arith.negf": elementwise(1, "float"),
    "math.fma": elementwise(3, "float"),
    "math.copysign": elementwise(2, "float"),
    "math.powf": elementwise(2, "float"),
    "math.atan2": elementwise(2, "float"),
    "tt.precise_divf": elementwise(2, "float"),
    "tt.precise_sqrt": elementwise(1, "float"),
    "tt.mulhiui": elementwise(2, "integer"),
    "arith.cmpi": compare,
    "arith.cmpf": compare,
    "arith.select": select,
    "arith.constant": constant,
    "tt.clampf": clamp,
    "tt.extern_elementwise": extern,
    "ub.poison": poison,
}
