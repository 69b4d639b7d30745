"""Delta files: one safetensors file as the exact difference to another with the same layout.

A delta file is `MAGIC`, the new file's safetensors header (uint32 length, JSON), and for each tensor in the order of
the data the blocks of `engine/transfer/block_delta.py`. Files are read and written block by block, through the page
cache: memory does not grow with the model. A delta says nothing of which file it belongs to; manifests do, by hashes.
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from weir.engine.transfer.block_delta import BLOCK_VALUES, DeltaDamaged, apply_block, as_bits, block_bytes, encoded

MAGIC = b"weirdlt1"
SUFFIX = ".delta"
_LENGTH = struct.Struct("<I")
_WIDTHS = {"64": 8, "32": 4, "16": 2}  # by the end of a dtype's name; values of others are compared as bytes


class Tensor(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor in the header of a safetensors file."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]  # bytes after the header

    @property
    def width(self) -> int:
        """Bytes of the integers as which its values are compared; those of formats below 16 bits are bytes."""
        return _WIDTHS.get(self.dtype[-2:], 1)


Layout = dict[str, Tensor]  # in the order of the data


def write_delta(old: Path, new: Path, target: Path) -> bool:
    """Write the difference from `old` to `new`, two safetensors files; False, and no file, if their layouts differ.

    Raises OSError where the disk does.
    """
    with _mapped(old) as before, _mapped(new) as after:
        header = _header(after)
        layout = layout_of(header)
        if layout is None or layout != layout_of(_header(before)) or not _fills(layout, header, after):
            return False
        with target.open("wb") as delta:
            delta.write(MAGIC + _LENGTH.pack(len(header)) + header)
            old_start, new_start = 8 + len(_header(before)), 8 + len(header)
            for tensor in layout.values():
                start, end = tensor.data_offsets
                old_values = as_bits(before[old_start + start : old_start + end], tensor.width)
                new_values = as_bits(after[new_start + start : new_start + end], tensor.width)
                delta.writelines(encoded(old_values, new_values))
    return True


def rebuilt(base: Path, deltas: Sequence[Path]) -> Iterator[bytes | memoryview]:
    """The parts of the file that `deltas`, applied to `base` one after the other, lead to.

    Raises `DeltaDamaged` where a delta cannot be read or does not fit, and OSError where a file is missing.
    """
    with _mapped(base) as before, ExitStack() as stack:
        opened = [stack.enter_context(delta.open("rb")) for delta in deltas]
        headers = [_read_header(delta, path) for delta, path in zip(opened, deltas, strict=True)]
        layout = layout_of(_header(before))
        for header, path in zip(headers, deltas, strict=True):
            if layout is None or layout_of(header) != layout:
                raise DeltaDamaged(f"{path} is of other tensors than {base}")
        assert layout is not None
        yield struct.pack("<Q", len(headers[-1])) + headers[-1]
        data_start = 8 + len(_header(before))
        for tensor in layout.values():
            start, end = (data_start + offset for offset in tensor.data_offsets)
            step = BLOCK_VALUES * tensor.width
            for at in range(start, end, step):
                values = as_bits(bytearray(before[at : min(at + step, end)]), tensor.width)
                for delta, path in zip(opened, deltas, strict=True):
                    try:
                        apply_block(values, delta)
                    except DeltaDamaged as error:
                        raise DeltaDamaged(f"{path}: {error}") from error
                yield values.data.cast("B")


def parts(delta: Path, part_bytes: int) -> Iterator[tuple[Layout, bytes]]:
    """The blocks of a delta file, with the tensors that they change: at most so many bytes at once, or one tensor.

    Raises `DeltaDamaged` where the file cannot be read, and OSError where it is missing.
    """
    with delta.open("rb") as file:
        held: Layout = {}
        blocks: list[bytes] = []
        for name, tensor in (layout_of(_read_header(file, delta)) or {}).items():
            start, end = tensor.data_offsets
            step = BLOCK_VALUES * tensor.width
            of_tensor = b"".join(block_bytes(file, min(step, end - at)) for at in range(start, end, step))
            if held and sum(map(len, blocks)) + len(of_tensor) > part_bytes:
                yield held, b"".join(blocks)
                held, blocks = {}, []
            held[name] = tensor
            blocks.append(of_tensor)
        if held:
            yield held, b"".join(blocks)


def layout_of(header: bytes) -> Layout | None:
    """The tensors of a safetensors header, in the order of their data; None where it is not such a header."""
    try:
        found: dict[str, Any] = json.loads(header)
        found.pop("__metadata__", None)
        tensors = msgspec.convert(found, dict[str, Tensor])
    except (ValueError, AttributeError, msgspec.ValidationError):
        return None
    return dict(sorted(tensors.items(), key=lambda item: item[1].data_offsets))


def _fills(layout: Layout, header: bytes, data: memoryview) -> bool:
    """Whether the tensors cover a file's data, one after the other, each in whole values."""
    end = 0
    for tensor in layout.values():
        start, stop = tensor.data_offsets
        if start != end or (stop - start) % tensor.width:
            return False
        end = stop
    return 8 + len(header) + end == len(data)


@contextmanager
def _mapped(path: Path) -> Iterator[memoryview]:
    """The bytes of a file. Raises OSError, also for an empty file."""
    with path.open("rb") as file:
        try:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise OSError(f"{path} is empty") from error
        yield memoryview(content)  # unmapped with its last view


def _header(data: memoryview) -> bytes:
    size = struct.unpack_from("<Q", data)[0] if len(data) >= 8 else 0
    return bytes(data[8 : 8 + size])


def _read_header(delta: BinaryIO, path: Path) -> bytes:
    if delta.read(len(MAGIC)) != MAGIC:
        raise DeltaDamaged(f"{path} is not a delta file")
    size = delta.read(_LENGTH.size)
    header = delta.read(_LENGTH.unpack(size)[0]) if len(size) == _LENGTH.size else b""
    if layout_of(header) is None:
        raise DeltaDamaged(f"the header of {path} cannot be read")
    return header
