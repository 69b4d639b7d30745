"""A version's tensors in buckets: the folder's bytes, in shared memory that the next version may use again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from weir.engine.transfer.bucket import FlattenedTensorMetadata, split
from weir.engine.weights import checksums
from weir.trainer.publishing import weight_source
from weir.trainer.publishing.weight_source import WeightSource

BUCKET = 4096


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    weight_source._kept.clear()
    yield
    weight_source._kept.clear()


def version(folder: Path, seed: int) -> Path:
    folder.mkdir()
    draw = torch.Generator().manual_seed(seed)
    tensors = {f"layer.{number}": torch.randn(24, 32, generator=draw).bfloat16() for number in range(8)}
    save_file(tensors | {"norm": torch.randn(32, generator=draw)}, folder / "model.safetensors")
    return folder


def sent(folder: Path, *, keep: bool, bucket: int = BUCKET) -> set[int]:
    """Send a version and compare every tensor with the folder's; returns where in memory the buckets lay."""
    expected, places = load_file(folder / "model.safetensors"), set()

    async def take(flat: torch.Tensor, entries: Sequence[FlattenedTensorMetadata], last: bool) -> None:
        places.add(flat.data_ptr())
        for name, tensor in split(flat, entries):
            assert torch.equal(tensor, expected.pop(name))
        assert last == (not expected)

    with WeightSource(folder, bucket) as source:
        asyncio.run(source.each_bucket(take))
        if keep:
            source.keep_memory()
    assert not expected
    return places


def test_the_next_version_is_sent_through_the_memory_that_the_last_one_kept(tmp_path: Path) -> None:
    first = sent(version(tmp_path / "1", 1), keep=True)
    assert len(first) == 2, "one bucket is filled while the other is sent"
    assert sent(version(tmp_path / "2", 2), keep=True) == first


def test_memory_that_a_receiver_may_still_read_is_not_used_again(tmp_path: Path) -> None:
    sent(version(tmp_path / "1", 1), keep=False)
    assert not weight_source._kept


def test_memory_that_is_too_small_is_replaced(tmp_path: Path) -> None:
    folder = version(tmp_path / "1", 1)
    sent(folder, keep=True)
    sent(folder, keep=True, bucket=4 * BUCKET)
    (held,) = {len(slot) for slot in weight_source._kept}
    assert held > BUCKET


def test_checksums_are_those_of_the_file_whatever_a_bucket_holds(tmp_path: Path) -> None:
    async def spoil(flat: torch.Tensor, entries: Sequence[FlattenedTensorMetadata], last: bool) -> None:
        flat.zero_()

    folder = version(tmp_path / "1", 1)
    tensors = load_file(folder / "model.safetensors")
    with WeightSource(folder, BUCKET) as source:
        source.held_as = frozenset(["float32", "bfloat16"])
        asyncio.run(source.each_bucket(spoil))
        for dtype, sums in source.checksums().items():
            assert sums == checksums({name: tensor.to(getattr(torch, dtype)) for name, tensor in tensors.items()})
        assert source.checksums().keys() == source.held_as
