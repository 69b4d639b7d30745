"""The forms of operations on tensors: shapes, dots, reductions; with the rules of their types."""

from __future__ import annotations

import math
from collections.abc import Callable

from weir.kernel_eval.ir.errors import Unsupported
from weir.kernel_eval.ir.text.arithmetic_forms import Form, is_kind
from weir.kernel_eval.ir.text.reader import Parsed, Reader
from weir.kernel_eval.ir.types import I1, I32, Scalar, Tensor, Type, element_of, shape_of, with_element

_PRECISIONS = frozenset({"tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"})
_SCALED = frozenset({"e4m3", "e5m2", "e2m1", "bf16", "fp16"})


def _make_range(reader: Reader, name: str) -> Parsed:
    """`{end = 8 : i32, start = 0 : i32} : tensor<8xi32>`."""
    attributes = reader.attributes("start", "end")
    reader.cursor.expect(":")
    kind = reader.cursor.type()
    start, end = attributes.get("start"), attributes.get("end")
    if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start < end < 1 << 31:
        raise reader.cursor.malformed("a range")
    reader.require(kind == Tensor((end - start,), I32), "a range of its type's size")
    return Parsed(types=(kind,), attributes=attributes)


def _reshapes(*attributes: str, flags: tuple[str, ...] = ()) -> Callable[..., Callable[[Reader, str], Parsed]]:
    """A form `%a flags {attributes} : T -> U`; the decorated function says whether the types fit."""

    def decorate(allowed: Callable[[Tensor | Type, Type, dict[str, object]], bool]) -> Form:
        def form(reader: Reader, name: str) -> Parsed:
            operand = reader.value()
            set_flags: dict[str, object] = {}
            while (flag := reader.cursor.peek().text) in flags:
                reader.cursor.take("word")
                set_flags[flag] = True
            found = {**reader.attributes(*attributes, *flags), **set_flags}
            reader.cursor.expect(":")
            source = reader.cursor.type()
            reader.cursor.expect("->")
            target = reader.cursor.type()
            reader.agree((operand,), (source,))
            reader.require(element_of(source) == element_of(target), f"{name} keeps the type of elements")
            reader.require(allowed(source, target, found), f"{name} from {source} to {target}")
            return Parsed(operands=(operand,), types=(target,), attributes=found)

        return form

    return decorate


@_reshapes()
def _splat(source: Type, target: Type, found: dict[str, object]) -> bool:
    return not isinstance(source, Tensor) and isinstance(target, Tensor)


@_reshapes()
def _unsplat(source: Type, target: Type, found: dict[str, object]) -> bool:
    return isinstance(source, Tensor) and source.numel == 1 and not isinstance(target, Tensor)


@_reshapes("axis")
def _expand_dims(source: Type, target: Type, found: dict[str, object]) -> bool:
    axis, shape = found.get("axis"), shape_of(source)
    if not isinstance(axis, int) or not 0 <= axis <= len(shape):
        return False
    return isinstance(source, Tensor) and shape_of(target) == (*shape[:axis], 1, *shape[axis:])


@_reshapes()
def _broadcast(source: Type, target: Type, found: dict[str, object]) -> bool:
    old, new = shape_of(source), shape_of(target)
    return bool(old) and len(old) == len(new) and all(a in (1, b) for a, b in zip(old, new, strict=True))


@_reshapes(flags=("allow_reorder", "efficient_layout"))
def _reshape(source: Type, target: Type, found: dict[str, object]) -> bool:
    both = isinstance(source, Tensor) and isinstance(target, Tensor)
    return both and math.prod(shape_of(source)) == math.prod(shape_of(target))


@_reshapes("order")
def _trans(source: Type, target: Type, found: dict[str, object]) -> bool:
    order, shape = found.get("order"), shape_of(source)
    if not isinstance(order, tuple) or sorted(order) != list(range(len(shape))):
        return False
    return shape_of(target) == tuple(shape[axis] for axis in order)


def split(reader: Reader, name: str) -> Parsed:
    """`%a : tensor<8x2xf32> -> tensor<8xf32>`, with two results."""
    operand = reader.value()
    reader.attributes()
    reader.cursor.expect(":")
    source = reader.cursor.type()
    reader.cursor.expect("->")
    target = reader.cursor.type()
    reader.agree((operand,), (source,))
    reader.require(shape_of(source) == (*shape_of(target), 2), "tt.split halves a last dimension of 2")
    reader.require(element_of(source) == element_of(target), "tt.split keeps the type of elements")
    return Parsed(operands=(operand,), types=(target, target))


def pair(reader: Reader, name: str) -> Parsed:
    """`%a, %b : T -> U`: tt.join and tt.cat."""
    operands = reader.values()
    reader.attributes()
    reader.cursor.expect(":")
    source = reader.cursor.type()
    reader.cursor.expect("->")
    target = reader.cursor.type()
    reader.require(len(operands) == 2, f"{name} takes two operands")
    reader.agree(operands, (source, source))
    shape = shape_of(source)
    joined = (*shape, 2) if name == "tt.join" else (2 * shape[0],) if len(shape) == 1 else None
    reader.require(shape_of(target) == joined and element_of(target) == element_of(source), f"{name} of such types")
    return Parsed(operands=operands, types=(target,))


def gather(reader: Reader, name: str) -> Parsed:
    """`%source[%index] {axis = 0 : i32} : (T, U) -> V`."""
    source = reader.value()
    (index,) = reader.value_list("[", "]") or (source,)
    attributes = reader.attributes("axis", "efficient_layout")
    reader.cursor.expect(":")
    kinds = reader.cursor.type_list()
    reader.cursor.expect("->")
    target = reader.cursor.type()
    reader.agree((source, index), kinds)
    axis, shape, places = attributes.get("axis"), shape_of(kinds[0]), shape_of(kinds[1])
    reader.require(isinstance(axis, int) and 0 <= axis < len(shape) == len(places), "tt.gather along an axis")
    others = all(a == b for at, (a, b) in enumerate(zip(shape, places, strict=True)) if at != axis)
    reader.require(others and target == with_element(kinds[1], kinds[0].element), "tt.gather of such types")  # type: ignore[union-attr]
    reader.require(is_kind(kinds[1], "integer"), "tt.gather takes integer indices")
    return Parsed(operands=(source, index), types=(target,), attributes={"axis": axis})


def histogram(reader: Reader, name: str) -> Parsed:
    """`%a : T -> U`, and `%a, %mask : T -> U`."""
    operands = reader.values()
    reader.attributes()
    reader.cursor.expect(":")
    source = reader.cursor.type()
    reader.cursor.expect("->")
    target = reader.cursor.type()
    reader.require(len(operands) <= 2 and is_kind(source, "integer"), "tt.histogram counts integers")
    reader.require(len(shape_of(source)) == 1 == len(shape_of(target)), "tt.histogram of one dimension")
    reader.require(is_kind(target, "integer"), "tt.histogram gives integers")
    reader.agree(operands, (source, with_element(source, I1))[: len(operands)])
    return Parsed(operands=operands, types=(target,))


def dot(reader: Reader, name: str) -> Parsed:
    """`%a, %b, %c, inputPrecision = tf32 {maxNumImpreciseAcc = 3 : i32} : A * B -> C`."""
    cursor = reader.cursor
    operands = [reader.value()]
    while cursor.has(",") and not cursor.sees("inputPrecision"):
        operands.append(reader.value())
    precision = "ieee"
    if cursor.has("inputPrecision"):
        cursor.expect("=")
        precision = cursor.one_of(_PRECISIONS, "inputPrecision")
    reader.attributes("maxNumImpreciseAcc")
    cursor.expect(":")
    left = cursor.type()
    cursor.expect("*")
    right = cursor.type()
    cursor.expect("->")
    target = cursor.type()
    reader.require(len(operands) == 3, "tt.dot takes three operands")
    reader.agree(tuple(operands), (left, right, target))
    _product(reader, shape_of(left), shape_of(right), shape_of(target))
    kind = "float" if is_kind(left, "float") else "integer"
    reader.require(is_kind(right, kind) and is_kind(target, kind), "tt.dot of floats, or of integers")
    return Parsed(operands=tuple(operands), types=(target,), attributes={"precision": precision})


def _product(reader: Reader, a: tuple[int, ...], b: tuple[int, ...], c: tuple[int, ...]) -> None:
    ranks = len(a) == len(b) == len(c) and len(a) in (2, 3)
    reader.require(ranks and a[-1] == b[-2] and (*a[:-1], b[-1]) == c and a[:-2] == b[:-2], "shapes of a product")


def dot_scaled(reader: Reader, name: str) -> Parsed:
    """`%a scale %s, %b scale %t, %c lhs = e4m3 rhs = e5m2 {fastMath = false} : A, S * B, T -> C`.

    Raises Unsupported.
    """
    cursor = reader.cursor
    sides, scales = [], []
    for _ in range(2):
        sides.append(reader.value())
        scales.append(reader.value() if cursor.has("scale") else None)
        cursor.expect(",")
    accumulator = reader.value()
    formats = []
    for side in ("lhs", "rhs"):
        cursor.expect(side)
        cursor.expect("=")
        formats.append(cursor.one_of(_SCALED, "scaled format"))
    attributes = reader.attributes("fastMath", "lhs_k_pack", "rhs_k_pack")
    if not (attributes.get("lhs_k_pack", True) and attributes.get("rhs_k_pack", True)):
        raise Unsupported("tt.dot_scaled packed along another dimension than K")
    cursor.expect(":")
    kinds: list[Type] = []
    for mark, scale in (("*", scales[0]), ("->", scales[1])):
        kinds.append(cursor.type())
        if scale is not None:
            cursor.expect(",")
            kinds.append(cursor.type())
        cursor.expect(mark)
    target = cursor.type()
    operands = (sides[0], scales[0], sides[1], scales[1], accumulator)
    present = tuple(operand for operand in operands if operand is not None)
    reader.agree(present, (*kinds, target))
    places = tuple(at for at, operand in enumerate(operands) if operand is not None)
    _check_scaled(reader, [None if value is None else reader.types[value] for value in operands], formats)
    return Parsed(operands=present, types=(target,), attributes={"formats": tuple(formats), "places": places})


def _check_scaled(reader: Reader, kinds: list[Type | None], formats: list[str]) -> None:
    left, left_scale, right, right_scale, target = kinds
    assert left is not None and right is not None and target is not None
    shapes = []
    for kind, scale, code, k_axis in ((left, left_scale, formats[0], 1), (right, right_scale, formats[1], 0)):
        shape = list(shape_of(kind))
        reader.require(len(shape) == 2, "tt.dot_scaled takes matrices")
        expected = {"e4m3": "f8E4M3FN", "e5m2": "f8E5M2", "e2m1": "i8", "bf16": "bf16", "fp16": "f16"}[code]
        reader.require(element_of(kind) in (Scalar(expected), Scalar("i8")), "tt.dot_scaled of its formats")
        reader.require(code not in ("bf16", "fp16") or element_of(kind) == Scalar(expected), "of its formats")
        shape[k_axis] *= 2 if code == "e2m1" else 1
        shapes.append(tuple(shape))
        if scale is not None:
            rows, groups = shape[1 - k_axis], shape[k_axis] // 32
            fits = shape_of(scale) == (rows, groups) and element_of(scale) == Scalar("i8")
            if shape_of(scale) == (rows, 2 * groups):
                raise Unsupported("tt.dot_scaled with a scale for 16 elements")
            reader.require(fits, "tt.dot_scaled has one scale for 32 elements")
    _product(reader, shapes[0], shapes[1], shape_of(target))
    reader.require(target == Tensor(shape_of(target), Scalar("f32")), "tt.dot_scaled accumulates in f32")


def combining(*attributes: str) -> Form:
    """`"tt.reduce"(%a) <{axis = 0 : i32}> ({ region }) : (T) -> U`; also tt.scan and tt.map_elementwise."""

    def form(reader: Reader, name: str) -> Parsed:
        cursor = reader.cursor
        operands = reader.value_list()
        found = reader.attributes(*attributes, opening="<")
        cursor.expect("(")
        region = reader.region(labelled=True)
        cursor.expect(")")
        reader.attributes()
        cursor.expect(":")
        kinds = cursor.type_list()
        cursor.expect("->")
        results = cursor.type_list()
        reader.agree(operands, kinds)
        reader.require(bool(kinds) and len({shape_of(kind) for kind in kinds}) == 1, f"{name} of one shape")
        reader.require(isinstance(kinds[0], Tensor), f"{name} takes tensors")
        _check_region(reader, name, region.blocks[0].arguments, kinds, results, found)
        return Parsed(operands=operands, types=results, attributes=found, regions=(region,))

    return form


def _check_region(
    reader: Reader,
    name: str,
    arguments: tuple[int, ...],
    kinds: tuple[Type, ...],
    results: tuple[Type, ...],
    found: dict[str, object],
) -> None:
    elements = tuple(element_of(kind) for kind in kinds)
    given = tuple(reader.types[argument] for argument in arguments)
    shape = shape_of(kinds[0])
    if name == "tt.map_elementwise":
        if found.get("pack", 1) != 1:
            raise Unsupported("tt.map_elementwise that packs elements")
        reader.require(given == elements, f"arguments of {name}")
        reader.require(all(shape_of(kind) == shape for kind in results), f"results of {name}")
        return
    axis = found.get("axis")
    reader.require(isinstance(axis, int) and 0 <= axis < len(shape), f"{name} along an axis")
    assert isinstance(axis, int)
    reader.require(given == elements * 2, f"arguments of {name}")
    left = shape[:axis] + shape[axis + 1 :] if name == "tt.reduce" else shape
    scalar = name == "tt.reduce" and not left
    expected = tuple(element if scalar else Tensor(left, element) for element in elements)  # type: ignore[arg-type]
    reader.require(results == expected, f"results of {name}")


FORMS: dict[str, Form] = {
    "tt.make_range": _make_range,
    "tt.splat": _splat,
    "tt.unsplat": _unsplat,
    "tt.expand_dims": _expand_dims,
    "tt.broadcast": _broadcast,
    "tt.reshape": _reshape,
    "tt.trans": _trans,
    "tt.split": split,
    "tt.join": pair,
    "tt.cat": pair,
    "tt.gather": gather,
    "tt.histogram": histogram,
    "tt.dot": dot,
    "tt.dot_scaled": dot_scaled,
    '"tt.reduce"': combining("axis"),
    '"tt.scan"': combining("axis", "reverse"),
    '"tt.map_elementwise"': combining("pack"),
}
