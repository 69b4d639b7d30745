"""Differences of arrays: exact for every bit pattern, small where little changed, and damage is an error."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.engine.transfer.block_delta import BLOCK_VALUES, Bits, DeltaDamaged, apply_block, as_bits, encoded


def difference(old: Bits, new: Bits) -> bytes:
    return b"".join(encoded(old, new))


def applied(old: Bits, delta: bytes) -> Bits:
    values, file = old.copy(), io.BytesIO(delta)
    for start in range(0, len(values), BLOCK_VALUES):
        apply_block(values[start : start + BLOCK_VALUES], file)
    assert not file.read(), "every block was read"
    return values


@given(
    width=st.sampled_from([1, 2, 4, 8]),
    size=st.integers(0, 600),
    share=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    bits=st.integers(1, 64),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_bits_come_back(width: int, size: int, share: float, bits: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    old = as_bits(random.bytes(size * width), width)
    steps = random.integers(0, 2 ** min(bits, 8 * width), size, dtype=np.uint64, endpoint=False).astype(old.dtype)
    new = np.where(random.random(size) < share, old + steps, old)
    assert (applied(old, difference(old, new)) == new).all()


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_arrays_of_several_blocks_come_back(width: int) -> None:
    random = np.random.default_rng(width)
    old = as_bits(random.bytes((2 * BLOCK_VALUES + 5) * width), width)
    new = old.copy()
    for place in (0, 7, BLOCK_VALUES - 1, 2 * BLOCK_VALUES, len(old) - 1):
        new[place] ^= old.dtype.type(1 << (8 * width - 1))
    delta = difference(old, new)
    assert (applied(old, delta) == new).all()
    assert len(delta) < 400


def test_nan_payloads_and_signed_zeros_are_kept() -> None:
    patterns = [0x7FC0, 0x7F81, 0xFFC1, 0x0000, 0x8000, 0x7F80, 0xFF80, 0x0001]  # of bfloat16
    old = np.array([first for first in patterns for _ in patterns] * 9, np.uint16)
    new = np.array([second for _ in patterns for second in patterns] * 9, np.uint16)
    assert (applied(old, difference(old, new)) == new).all()


def test_a_change_of_one_unit_in_a_few_values_takes_few_bytes() -> None:
    random = np.random.default_rng(0)
    old = as_bits(random.bytes(2 * BLOCK_VALUES), 2)
    new = old + (random.random(BLOCK_VALUES) < 0.02).astype(np.uint16)
    assert len(difference(old, new)) < 0.015 * new.nbytes


def test_what_has_nothing_in_common_is_stored_whole() -> None:
    random = np.random.default_rng(0)
    old, new = (as_bits(random.bytes(2 * BLOCK_VALUES), 2) for _ in range(2))
    assert new.nbytes < len(difference(old, new)) < new.nbytes + 20


def test_a_difference_that_is_cut_off_or_of_other_bytes_is_an_error() -> None:
    old = np.zeros(1000, np.uint16)
    new = old.copy()
    new[::50] = 9
    delta = difference(old, new)
    with pytest.raises(DeltaDamaged, match="too early"):
        applied(old, delta[:-1])
    with pytest.raises(DeltaDamaged, match="zstd cannot read"):
        applied(old, delta[:9] + bytes(len(delta) - 9))
    with pytest.raises(DeltaDamaged, match="changes value 950 of 900"):
        applied(old[:900], delta)
