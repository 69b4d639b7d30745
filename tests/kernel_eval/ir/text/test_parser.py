"""The text of TTIR is read strictly: what is not known is refused by name, what is wrong by its line."""

from __future__ import annotations

import pytest

from weir.kernel_eval.ir.errors import IrError, LimitExceeded, Malformed, Unsupported
from weir.kernel_eval.ir.limits import ParseLimits
from weir.kernel_eval.ir.text.parser import parse
from weir.kernel_eval.ir.types import I32, Pointer, Scalar, Tensor

ADD = """#loc = loc("a (b) \\" c":1:2)
module {
  tt.func public @add(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("x"(#loc)), %n: i32)
      attributes {noinline = false} {
    %cst = arith.constant dense<1.000000e+00> : tensor<8xf32>
    %0 = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32> loc(#loc)
    %1 = tt.splat %n : i32 -> tensor<8xi32>
    %2 = arith.cmpi slt, %0, %1 : tensor<8xi32> loc(callsite(#loc at "f"(#loc)))
    %3 = tt.splat %x : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
    %4 = tt.addptr %3, %0 : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
    %5 = tt.load %4, %2 : tensor<8x!tt.ptr<f32>>
    %6 = arith.addf %5, %cst : tensor<8xf32>
    tt.store %4, %6, %2 : tensor<8x!tt.ptr<f32>>
    tt.return
  } loc(#loc)
} loc(#loc)
#loc1 = loc(unknown)
"""


def test_a_module_is_read_with_its_types_and_without_its_locations() -> None:
    module = parse(ADD)
    entry = module.entry
    assert (entry.names, [entry.types[number] for number in entry.parameters]) == (
        ("x", "n"),
        [Pointer(Scalar("f32")), I32],
    )
    operations = entry.body.blocks[0].operations
    assert [operation.name for operation in operations[:3]] == ["arith.constant", "tt.make_range", "tt.splat"]
    assert entry.types[operations[5].results[0]] == Tensor((8,), Pointer(Scalar("f32")))
    assert module.operations == len(operations) == 10


def test_values_are_freed_after_their_last_use() -> None:
    operations = parse(ADD).entry.body.blocks[0].operations
    (load,) = (operation for operation in operations if operation.name == "tt.load")
    (add,) = (operation for operation in operations if operation.name == "arith.addf")
    (store,) = (operation for operation in operations if operation.name == "tt.store")
    assert load.dead == ()
    assert set(load.results) <= set(add.dead)
    assert set(store.operands) == set(store.dead)


REFUSED = {
    "operation": ("arith.addf", "arith.addg", Unsupported, "arith.addg"),
    "attribute": ("{end = 8 : i32,", "{step = 8 : i32,", Unsupported, "step"),
    "type": ("%n: i32", "%n: i31", Unsupported, "i31"),
    "inline assembly": ("arith.addf %5", 'tt.elementwise_inline_asm "x" %5', Unsupported, "tt.elementwise_inline_asm"),
    "relation": ("slt", "slx", Unsupported, "slx"),
    "address space": ("!tt.ptr<f32> {", "!tt.ptr<f32, 3> {", Unsupported, "address space"),
    "undefined value": ("arith.addf %5", "arith.addf %9", Malformed, "%9 is used before it is defined"),
    "defined twice": ("%6 = ", "%5 = ", Malformed, "%5 is defined twice"),
    "other types": ("arith.addf %5, %cst", "arith.addf %0, %cst", Malformed, "other types"),
    "wrong range": ("end = 8", "end = 16", Malformed, "a range of its type's size"),
    "no power of two": ("dense<1.000000e+00> : tensor<8xf32>", "dense<1.0> : tensor<6xf32>", Malformed, "power of two"),
    "a character": ("slt", "sl;", Malformed, "starts no token"),
    "integer for a float": ("dense<1.000000e+00>", "dense<1>", Malformed, "a decimal point"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_known_or_wrong_is_refused(case: str) -> None:
    old, new, error, message = REFUSED[case]
    assert old in ADD
    with pytest.raises(error, match=message):
        parse(ADD.replace(old, new, 1))


def test_every_truncated_text_is_refused() -> None:
    body = ADD[ADD.index("module") : ADD.rindex("}")]
    for end in range(0, len(body), 7):
        with pytest.raises(IrError):
            parse(body[:end])


def nested(depth: int) -> str:
    opened = "".join("scf.if %c {\n" for _ in range(depth))
    return f"module {{ tt.func public @f(%c: i1) {{ {opened} {'}' * depth} tt.return }} }}"


def test_limits_hold_before_memory_is_used() -> None:
    cases = [
        ("text_bytes", ADD, ParseLimits(text_bytes=100)),
        ("operations", ADD, ParseLimits(operations=5)),
        ("nesting", nested(100), ParseLimits()),
        ("tensor_elements", ADD.replace("tensor<8xf32>", "tensor<1048576x1048576xf32>"), ParseLimits()),
        ("tensor_elements", ADD.replace("tensor<8xf32>", f"tensor<{'2x' * 100}f32>"), ParseLimits()),
        ("nesting", ADD.replace("!tt.ptr<f32> {", f"{'!tt.ptr<' * 100}f32{'>' * 100} {{"), ParseLimits()),
    ]
    for limit, text, limits in cases:
        with pytest.raises(LimitExceeded) as raised:
            parse(text, limits)
        assert raised.value.limit == limit


def test_gigantic_numbers_are_refused() -> None:
    for number in ("9" * 1000, "0x" + "F" * 1000, "9" * 40, "-" + "9" * 30):
        with pytest.raises(IrError):
            parse(ADD.replace("start = 0", f"start = {number}"))
