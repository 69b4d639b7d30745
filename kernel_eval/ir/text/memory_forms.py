"""The forms of operations on memory: pointers, loads, stores, atomics, descriptors; with the rules of their types."""

from __future__ import annotations

from typing import Any

from weir.kernel_eval.ir.errors import Unsupported
from weir.kernel_eval.ir.text.arithmetic_forms import Form, is_kind
from weir.kernel_eval.ir.text.reader import Parsed, Reader
from weir.kernel_eval.ir.types import (
    I1,
    I32,
    I64,
    Descriptor,
    Pointer,
    Scalar,
    Tensor,
    Type,
    element_of,
    shape_of,
    with_element,
)

_HINT_WORDS = frozenset({"cacheModifier", "evictionPolicy", "isVolatile", "cache", "evict"})
_PADDINGS = {1: "zero", 2: "nan", "pad_zero": "zero", "pad_nan": "nan", "zero": "zero", "nan": "nan"}
_KINDS = frozenset(["and", "or", "xor", "add", "fadd", "max", "min", "umax", "umin", "exch", "xchg"])
_REDUCTIONS = frozenset(["add", "min", "max", "and", "or", "xor"])
_ORDERS = frozenset(["relaxed", "acquire", "release", "acq_rel"])
_SCOPES = frozenset({"gpu", "cta", "sys"})


def access_attributes(reader: Reader) -> dict[str, Any]:
    """Hints to the cache are read and dropped; `boundary` and `padding` are kept. Raises Unsupported."""
    cursor = reader.cursor
    found: dict[str, Any] = {}
    while cursor.peek().kind == "word":
        word = cursor.take("word")
        if word not in _HINT_WORDS and word != "padding":
            raise Unsupported(f"attribute {word[:40]}")
        cursor.expect("=")
        value = cursor.take("word")
        if word == "padding":
            found["padding"] = value
    known = ("boundaryCheck", "padding", "isVolatile", "cache", "evict", "cacheModifier", "evictionPolicy", "flagArray")
    found |= reader.attributes(*known)
    padding = found.get("padding")
    if padding is not None and padding not in _PADDINGS:
        raise Unsupported(f"padding {padding}")
    return {"boundary": tuple(found.get("boundaryCheck", ())), "padding": _PADDINGS.get(padding, "")}


def pointee(reader: Reader, kind: Type) -> Type:
    """The type of what pointers point to: numbers, pointers or a block of a tensor. Raises Unsupported."""
    element = element_of(kind)
    reader.require(isinstance(element, Pointer), "a pointer is accessed")
    assert isinstance(element, Pointer)
    if isinstance(element.pointee, Pointer):
        raise Unsupported("pointers in memory")
    if isinstance(element.pointee, Descriptor):
        raise Unsupported("descriptors in memory")
    if isinstance(element.pointee, Tensor):
        reader.require(not isinstance(kind, Tensor), "a block pointer is no tensor")
        if not isinstance(element.pointee.element, Scalar):
            raise Unsupported("pointers in memory")
        return element.pointee
    return with_element(kind, element.pointee)


def load(reader: Reader, name: str) -> Parsed:
    """`%pointers, %mask, %other … : P`."""
    operands = reader.values()
    attributes = access_attributes(reader)
    reader.cursor.expect(":")
    kind = reader.cursor.type()
    value = pointee(reader, kind)
    reader.agree(operands, (kind, with_element(kind, I1), value)[: len(operands)])
    reader.require(1 <= len(operands) <= 3, "tt.load takes pointers, a mask and a default")
    _check_block(reader, kind, operands, 1, attributes)
    return Parsed(operands=operands, types=(value,), attributes=attributes)


def store(reader: Reader, name: str) -> Parsed:
    """`%pointers, %value, %mask … : P`."""
    operands = reader.values()
    attributes = access_attributes(reader)
    reader.cursor.expect(":")
    kind = reader.cursor.type()
    value = pointee(reader, kind)
    reader.require(2 <= len(operands) <= 3, "tt.store takes pointers, a value and a mask")
    reader.agree(operands, (kind, value, with_element(kind, I1))[: len(operands)])
    _check_block(reader, kind, operands, 2, attributes)
    return Parsed(operands=operands, attributes=attributes)


def _check_block(reader: Reader, kind: Type, operands: tuple[int, ...], most: int, attributes: dict[str, Any]) -> None:
    element = element_of(kind)
    assert isinstance(element, Pointer)
    if isinstance(element.pointee, Tensor):
        rank = len(element.pointee.shape)
        axes = attributes["boundary"]
        reader.require(len(operands) <= most, "a block pointer takes no mask")
        reader.require(all(isinstance(axis, int) and 0 <= axis < rank for axis in axes), "axes of a block")
    else:
        reader.require(not attributes["boundary"], "only block pointers check boundaries")


def atomic_rmw(reader: Reader, name: str) -> Parsed:
    """`fadd, acq_rel, gpu, %pointers, %value, %mask : (P, T, M) -> T`."""
    cursor = reader.cursor
    kind = cursor.one_of(_KINDS, "atomic")
    cursor.expect(",")
    order = cursor.one_of(_ORDERS, "memory order")
    cursor.expect(",")
    scope = cursor.one_of(_SCOPES, "memory scope")
    cursor.expect(",")
    operands, kinds, result = _atomic(reader)
    value = pointee(reader, kinds[0])
    reader.require(2 <= len(operands) <= 3, "tt.atomic_rmw takes pointers, values and a mask")
    expected = (kinds[0], value, with_element(kinds[0], I1))[: len(operands)]
    reader.require(kinds == expected and result == value, "types of tt.atomic_rmw")
    wanted = "float" if kind == "fadd" else "number" if kind in ("exch", "xchg") else "integer"
    reader.require(is_kind(value, wanted) and element_of(value) != I1, f"tt.atomic_rmw {kind} of {wanted} values")
    return Parsed(operands=operands, types=(result,), attributes={"kind": kind, "order": order, "scope": scope})


def atomic_cas(reader: Reader, name: str) -> Parsed:
    """`acq_rel, gpu, %pointers, %compared, %value : (P, T, T) -> T`."""
    cursor = reader.cursor
    order = cursor.one_of(_ORDERS, "memory order")
    cursor.expect(",")
    scope = cursor.one_of(_SCOPES, "memory scope")
    cursor.expect(",")
    operands, kinds, result = _atomic(reader)
    value = pointee(reader, kinds[0])
    reader.require(kinds == (kinds[0], value, value) and result == value, "types of tt.atomic_cas")
    reader.require(is_kind(value, "number") and element_of(value) != I1, "tt.atomic_cas of numbers")
    return Parsed(operands=operands, types=(result,), attributes={"kind": "cas", "order": order, "scope": scope})


def _atomic(reader: Reader) -> tuple[tuple[int, ...], tuple[Type, ...], Type]:
    operands = reader.values()
    reader.attributes()
    reader.cursor.expect(":")
    kinds = reader.cursor.type_list()
    reader.cursor.expect("->")
    result = reader.cursor.type()
    reader.agree(operands, kinds)
    reader.require(
        not isinstance(pointee(reader, kinds[0]), Tensor) or isinstance(kinds[0], Tensor), "no block pointers"
    )
    return operands, kinds, result


def addptr(reader: Reader, name: str) -> Parsed:
    """`%pointer, %offset : P, I`."""
    operands = reader.values()
    reader.attributes()
    reader.cursor.expect(":")
    kinds = reader.cursor.types()
    reader.agree(operands, kinds)
    reader.require(len(kinds) == 2 and is_kind(kinds[0], "pointer"), "tt.addptr takes a pointer and an offset")
    alike = shape_of(kinds[0]) == shape_of(kinds[1]) and isinstance(kinds[0], Tensor) == isinstance(kinds[1], Tensor)
    reader.require(is_kind(kinds[1], "integer") and alike, "tt.addptr of one shape")
    element = element_of(kinds[0])
    assert isinstance(element, Pointer)
    reader.require(not isinstance(element.pointee, Tensor), "block pointers are advanced")
    return Parsed(operands=operands, types=(kinds[0],))


def _list_types(reader: Reader, values: tuple[int, ...], allowed: tuple[Type, ...]) -> None:
    reader.require(all(reader.types[value] in allowed for value in values), "sizes and offsets are integers")


def make_tensor_ptr(reader: Reader, name: str) -> Parsed:
    """`%base, [%shape], [%strides], [%offsets] {order = array<i32: 1, 0>} : <tensor<16x16xf16>>`."""
    cursor = reader.cursor
    base = reader.value()
    lists = []
    for allowed in ((I64,), (I64,), (I32,)):
        cursor.expect(",")
        lists.append(reader.value_list("[", "]"))
        _list_types(reader, lists[-1], allowed)
    reader.attributes("order")
    cursor.expect(":")
    kind = cursor.pointer_body() if cursor.sees("<") else cursor.type()
    block = pointee(reader, kind)
    reader.require(isinstance(block, Tensor), "a pointer to a block")
    assert isinstance(block, Tensor)
    reader.require(all(len(values) == len(block.shape) for values in lists), "one number for each dimension")
    reader.agree((base,), (Pointer(block.element),))
    return Parsed(operands=(base, *lists[0], *lists[1], *lists[2]), types=(kind,))


def advance(reader: Reader, name: str) -> Parsed:
    """`%pointer, [%offsets] : P`."""
    base = reader.value()
    reader.cursor.expect(",")
    offsets = reader.value_list("[", "]")
    reader.attributes()
    reader.cursor.expect(":")
    kind = reader.cursor.pointer_body() if reader.cursor.sees("<") else reader.cursor.type()
    block = pointee(reader, kind)
    reader.require(isinstance(block, Tensor) and len(block.shape) == len(offsets), "one offset for each dimension")
    _list_types(reader, offsets, (I32,))
    reader.agree((base,), (kind,))
    return Parsed(operands=(base, *offsets), types=(kind,))


def make_descriptor(reader: Reader, name: str) -> Parsed:
    """`%base, [%shape], [%strides] {padding = 1 : i32} : <f32>, <tensor<16x16xf32>>`."""
    cursor = reader.cursor
    base = reader.value()
    cursor.expect(",")
    shape = reader.value_list("[", "]")
    cursor.expect(",")
    strides = reader.value_list("[", "]")
    attributes = access_attributes(reader)
    cursor.expect(":")
    pointer = cursor.pointer_body() if cursor.sees("<") else cursor.type()
    cursor.expect(",")
    kind = cursor.descriptor_body() if cursor.sees("<") else cursor.type()
    reader.agree((base,), (pointer,))
    reader.require(isinstance(kind, Descriptor), "a descriptor")
    assert isinstance(kind, Descriptor)
    rank = len(kind.block.shape)
    reader.require(len(shape) == rank == len(strides), "one size and stride for each dimension")
    reader.require(pointer == Pointer(kind.block.element), "a descriptor of the pointer's elements")
    _list_types(reader, shape, (I32,))
    _list_types(reader, strides, (I64,))
    return Parsed(operands=(base, *shape, *strides), types=(kind,), attributes={"padding": attributes["padding"]})


def _described(reader: Reader, name: str) -> tuple[int, tuple[int, ...]]:
    descriptor = reader.value()
    reader.require(isinstance(reader.types[descriptor], Descriptor), f"{name} takes a descriptor")
    return descriptor, reader.value_list("[", "]")


def _descriptor_of(reader: Reader, kind: Type, offsets: tuple[int, ...]) -> Tensor:
    reader.require(isinstance(kind, Descriptor), "a descriptor")
    assert isinstance(kind, Descriptor)
    reader.require(len(offsets) == len(kind.block.shape), "one offset for each dimension")
    _list_types(reader, offsets, (I32,))
    return kind.block


def _check_tile(reader: Reader, tile: Type, block: Tensor) -> None:
    """A block may lose leading dimensions of 1."""
    fits = isinstance(tile, Tensor) and tile.element == block.element and tile.numel == block.numel
    reader.require(fits, "a tensor of the block's elements")


def descriptor_load(reader: Reader, name: str) -> Parsed:
    """`%d[%i, %j] : D -> T`."""
    descriptor, offsets = _described(reader, name)
    access_attributes(reader)
    reader.cursor.expect(":")
    kind = reader.cursor.type()
    reader.cursor.expect("->")
    tile = reader.cursor.type()
    reader.agree((descriptor,), (kind,))
    _check_tile(reader, tile, _descriptor_of(reader, kind, offsets))
    return Parsed(operands=(descriptor, *offsets), types=(tile,))


def descriptor_store(reader: Reader, name: str) -> Parsed:
    """`%d[%i, %j], %value : D, T`; tt.descriptor_reduce has a kind before."""
    attributes = {}
    if name == "tt.descriptor_reduce":
        attributes["kind"] = reader.cursor.one_of(_REDUCTIONS, name)
        reader.cursor.expect(",")
    descriptor, offsets = _described(reader, name)
    reader.cursor.expect(",")
    value = reader.value()
    access_attributes(reader)
    reader.cursor.expect(":")
    kind = reader.cursor.type()
    reader.cursor.expect(",")
    tile = reader.cursor.type()
    reader.agree((descriptor, value), (kind, tile))
    _check_tile(reader, tile, _descriptor_of(reader, kind, offsets))
    return Parsed(operands=(descriptor, value, *offsets), attributes=attributes)


def descriptor_gather(reader: Reader, name: str) -> Parsed:
    """`%d[%rows, %column] : (D, R, i32) -> T`: rows of a matrix."""
    descriptor, places = _described(reader, name)
    reader.attributes()
    reader.cursor.expect(":")
    kinds = reader.cursor.type_list()
    reader.cursor.expect("->")
    tile = reader.cursor.type()
    reader.agree((descriptor, *places), kinds)
    _check_rows(reader, kinds[0], kinds[1:], tile)
    return Parsed(operands=(descriptor, *places), types=(tile,))


def descriptor_scatter(reader: Reader, name: str) -> Parsed:
    """`%d[%rows, %column], %value : D, R, i32, T`."""
    descriptor, places = _described(reader, name)
    reader.cursor.expect(",")
    value = reader.value()
    reader.attributes()
    reader.cursor.expect(":")
    kinds = reader.cursor.types()
    reader.agree((descriptor, *places, value), kinds)
    _check_rows(reader, kinds[0], kinds[1:-1], kinds[-1])
    return Parsed(operands=(descriptor, value, *places))


def _check_rows(reader: Reader, kind: Type, places: tuple[Type, ...], tile: Type) -> None:
    fits = isinstance(kind, Descriptor) and isinstance(tile, Tensor) and len(places) == 2 and places[1] == I32
    reader.require(fits and isinstance(places[0], Tensor) and is_kind(places[0], "integer"), "rows of a descriptor")
    assert isinstance(kind, Descriptor) and isinstance(tile, Tensor) and isinstance(places[0], Tensor)
    shape = (places[0].numel, kind.block.shape[-1])
    single = len(kind.block.shape) == 2 and kind.block.shape[0] == 1
    reader.require(single and tile == Tensor(shape, kind.block.element), "rows of a descriptor")


FORMS: dict[str, Form] = {
    "tt.load": load,
    "tt.store": store,
    "tt.atomic_rmw": atomic_rmw,
    "tt.atomic_cas": atomic_cas,
    "tt.addptr": addptr,
    "tt.make_tensor_ptr": make_tensor_ptr,
    "tt.advance": advance,
    "tt.make_tensor_descriptor": make_descriptor,
    "tt.descriptor_load": descriptor_load,
    "tt.descriptor_store": descriptor_store,
    "tt.descriptor_reduce": descriptor_store,
    "tt.descriptor_gather": descriptor_gather,
    "tt.descriptor_scatter": descriptor_scatter,
}
