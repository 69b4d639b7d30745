"""Functions of the device library that take or give integers, against Python's integers and numpy."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from weir.kernel_eval.ir.grid.libdevice import find

DTYPES = {32: torch.int32, 64: torch.int64}


def call(name: str, *values: torch.Tensor) -> list[int]:
    function = find(f"__nv_{name}", len(values))
    assert function is not None
    found: list[int] = function(*values).tolist()
    return found


def drawn(bits: int) -> list[int]:
    """Numbers without a sign of all sizes, and those at the ends."""
    source = random.Random(bits)
    ends = [0, 1, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1]
    return ends + [source.getrandbits(source.randint(1, bits)) for _ in range(400)]


def held(numbers: list[int], bits: int) -> torch.Tensor:
    return torch.tensor([n - (1 << bits) if n >> (bits - 1) else n for n in numbers], dtype=DTYPES[bits])


@pytest.mark.parametrize("bits", DTYPES)
@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("popc", lambda n, bits: n.bit_count()),
        ("clz", lambda n, bits: bits - n.bit_length()),
        ("ffs", lambda n, bits: (n & -n).bit_length()),
        ("brev", lambda n, bits: int(format(n, f"0{bits}b")[::-1], 2)),
    ],
)
def test_bits_are_counted_and_turned_round(name: str, of: Callable[[int, int], int], bits: int) -> None:
    numbers = drawn(bits)
    got = call(name + ("ll" if bits == 64 else ""), held(numbers, bits))
    assert [n % (1 << bits) for n in got] == [of(n, bits) for n in numbers]


@pytest.mark.parametrize("bits", DTYPES)
def test_the_upper_half_of_a_product(bits: int) -> None:
    numbers = drawn(bits)
    one, two = held(numbers, bits), held(numbers[::-1], bits)
    signed = [(a * b) >> bits for a, b in zip(one.tolist(), two.tolist(), strict=True)]
    assert call("mulhi" if bits == 32 else "mul64hi", one, two) == signed
    got = call("umulhi" if bits == 32 else "umul64hi", one, two)
    assert [n % (1 << bits) for n in got] == [(a * b) >> bits for a, b in zip(numbers, numbers[::-1], strict=True)]


def test_averages_and_products_of_few_bits_do_not_overflow() -> None:
    least, largest = -(1 << 31), (1 << 31) - 1
    one, two = (torch.tensor(values, dtype=torch.int32) for values in ([largest, -5, least], [largest, 2, least]))
    assert call("hadd", one, two) == [largest, -2, least]
    assert call("rhadd", one, two) == [largest, -1, least]
    assert call("uhadd", held([2**32 - 1], 32), held([2**32 - 3], 32)) == [-2]
    assert call("mul24", held([2**32 - 5], 32), held([7], 32)) == [-35]
    assert call("umul24", held([(1 << 24) | 5], 32), held([7], 32)) == [35]
    assert call("sad", *(torch.tensor([n], dtype=torch.int32) for n in (3, -4, 10))) == [17]


def test_what_no_integer_holds_is_the_end_of_the_range() -> None:
    values = torch.tensor([0.5, 1.5, -1.5, 3e9, -3e9, 1e19, math.nan, -math.inf])
    ends = -(1 << 31), (1 << 31) - 1, -(1 << 63), (1 << 63) - 1
    assert call("float2int_rn", values) == [0, 2, -2, ends[1], ends[0], ends[1], 0, ends[0]]
    assert call("float2int_ru", values)[:3] == [1, 2, -1]
    assert [n % (1 << 32) for n in call("float2uint_rz", values)] == [0, 1, 0, int(3e9), 0, 2**32 - 1, 0, 0]
    assert call("float2ll_rz", values) == [0, 1, -1, int(3e9), -int(3e9), ends[3], ends[2], ends[2]]
    unsigned = [n % (1 << 64) for n in call("float2ull_rd", values)]
    assert unsigned == [0, 1, 0, int(3e9), 0, int(np.float32(1e19)), 1 << 63, 0]
    assert call("llroundf", torch.tensor([0.5, -0.5, 2.5, 0.49999997])) == [1, -1, 3, 0]


@pytest.mark.parametrize("target", ["float", "double"])
def test_numbers_without_a_sign_are_rounded_once(target: str) -> None:
    numbers = drawn(64)
    wanted = np.array(numbers, dtype=np.uint64).astype({"float": np.float32, "double": np.float64}[target])
    assert call(f"ull2{target}_rn", held(numbers, 64)) == wanted.tolist()


def test_bits_are_shown_as_another_type() -> None:
    values = torch.tensor([1.0, -2.5])
    assert call("int_as_float", torch.tensor(call("float_as_int", values), dtype=torch.int32)) == [1.0, -2.5]
    assert call("float_as_int", values)[0] == 0x3F800000
