"""The exact difference between two arrays of equal length, in blocks: which values changed, and by how much.

Values are compared and restored as unsigned integers of their own width, so that a difference is exact for any dtype:
NaN payloads and -0.0 are bits like others. A block holds the gaps between the places of changed values and their
differences, zigzag-coded, both split into planes of bytes and compressed by zstd; or the values themselves, where that
is not larger. Blocks are small enough to stay in a core's cache.

Form of a block: the number of changed values, the bytes of a gap, and the compressed size, as little-endian uint32,
uint8 and uint32; then gaps and differences, compressed as one. Where the number is `WHOLE`, the values follow.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

BLOCK_VALUES = 1 << 18
WHOLE = 0xFFFFFFFF
_HEAD = struct.Struct("<IBI")

Bits = np.ndarray[tuple[int], np.dtype[Any]]  # (N,), unsigned integers
Places = np.ndarray[tuple[int], np.dtype[np.int64]]  # (N,), indices


class DeltaDamaged(Exception):
    """A difference cannot be read: its bytes are not what was written."""


def as_bits(data: bytes | bytearray | memoryview | np.ndarray[Any, Any], width: int) -> Bits:
    """The bytes of an array as unsigned integers of `width` bytes: 1, 2, 4 or 8."""
    return np.frombuffer(data, dtype=np.dtype(f"<u{width}"))


def encoded(old: Bits, new: Bits) -> Iterator[bytes]:
    """The difference from `old` to `new`, which have the same length and width: parts to write in their order."""
    codec = pa.Codec("zstd", compression_level=1)
    for start in range(0, len(new), BLOCK_VALUES):
        yield from _encoded_block(old[start : start + BLOCK_VALUES], new[start : start + BLOCK_VALUES], codec)


def apply_block(values: Bits, delta: BinaryIO) -> None:
    """Read the next block, and change `values`, the old values of that block, into the new ones.

    Raises `DeltaDamaged` where the file ends early or the block does not fit the values.
    """
    num_changed, gap_width, size = _HEAD.unpack(_read(delta, _HEAD.size))
    if num_changed == 0:
        return
    if num_changed == WHOLE:
        values[:] = as_bits(_read(delta, values.nbytes), values.itemsize)
        return
    if num_changed > len(values) or gap_width not in (1, 2, 4):
        raise DeltaDamaged(f"a block changes {num_changed} of {len(values)} values, by gaps of {gap_width} bytes")
    planes = _decompressed(_read(delta, size), num_changed * (gap_width + values.itemsize))
    gaps = _from_planes(planes[: num_changed * gap_width], gap_width)
    differences = _from_planes(planes[num_changed * gap_width :], values.itemsize)
    places = np.cumsum(gaps, dtype=np.int64)
    if places[-1] >= len(values):
        raise DeltaDamaged(f"a block changes value {places[-1]} of {len(values)}")
    values[places] += _unzigzag(differences)


def block_bytes(delta: BinaryIO, num_bytes: int) -> bytes:
    """The next block as it was written, for values of so many bytes. Raises `DeltaDamaged` where it is cut off."""
    head = _read(delta, _HEAD.size)
    num_changed, _, size = _HEAD.unpack(head)
    return head + _read(delta, num_bytes if num_changed == WHOLE else size)


def _encoded_block(old: Bits, new: Bits, codec: Any) -> Iterator[bytes]:
    places = _changed_places(old, new)
    if not len(places):
        yield _HEAD.pack(0, 0, 0)
        return
    gaps = np.diff(places, prepend=0)
    gap_width = next(width for width in (1, 2, 4) if gaps.max() < 256**width)
    differences = _zigzag(new[places] - old[places])
    planes = np.concatenate([_planes(gaps.astype(f"<u{gap_width}")), _planes(differences)])
    compressed: bytes = codec.compress(planes, asbytes=True)
    if len(compressed) >= new.nbytes:
        yield _HEAD.pack(WHOLE, 0, 0)
        yield new.tobytes()
        return
    yield _HEAD.pack(len(places), gap_width, len(compressed))
    yield compressed


def _changed_places(old: Bits, new: Bits) -> Places:
    """Where two blocks differ, rising. Of the bytes of the bitmap few have a bit: only those are searched."""
    bitmap = np.packbits(old != new)
    filled = np.flatnonzero(bitmap != 0)
    bits = np.flatnonzero(np.unpackbits(bitmap[filled]).view(np.bool_))
    places: Places = (filled[bits >> 3] << 3) + (bits & 7)
    return places


def _zigzag(differences: Bits) -> Bits:
    """Small differences of either sign become small numbers: 0, -1, 1, -2 become 0, 1, 2, 3."""
    one, sign_bit = differences.dtype.type(1), differences.dtype.type(differences.itemsize * 8 - 1)
    coded: Bits = (differences << one) ^ (~(differences >> sign_bit) + one)
    return coded


def _unzigzag(coded: Bits) -> Bits:
    one = coded.dtype.type(1)
    differences: Bits = (coded >> one) ^ (~(coded & one) + one)
    return differences


def _planes(values: Bits) -> Bits:
    """First the lowest bytes of all values, then the next ones: planes of small numbers are mostly 0."""
    return np.ascontiguousarray(values.view(np.uint8).reshape(-1, values.itemsize).T).ravel()


def _from_planes(planes: Bits, width: int) -> Bits:
    return as_bits(np.ascontiguousarray(planes.reshape(width, -1).T), width)


def _read(delta: BinaryIO, size: int) -> bytes:
    data = delta.read(size)
    if len(data) != size:
        raise DeltaDamaged(f"it ends {size - len(data)} bytes too early")
    return data


def _decompressed(data: bytes, size: int) -> Bits:
    try:
        planes = pa.decompress(data, decompressed_size=size, codec="zstd")
    except (OSError, pa.ArrowException) as error:
        raise DeltaDamaged(f"zstd cannot read a block: {error}") from error
    return as_bits(planes, 1)
