"""Delta files of safetensors: the same file again, header and all, through any number of differences."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from weir.engine.transfer.block_delta import DeltaDamaged
from weir.trainer.versions.delta_file import rebuilt, write_delta

DTYPES = (
    *(torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int64, torch.int32, torch.int8),
    *(torch.uint8, torch.bool, torch.float8_e4m3fn),
)


def tensors(seed: int) -> dict[str, torch.Tensor]:
    """One tensor of each dtype, of random bits; the next seed changes a few of their bytes."""
    random = torch.Generator().manual_seed(0)
    found = {}
    for dtype in DTYPES:
        bits = torch.randint(0, 256, (4096,), generator=random, dtype=torch.uint8)
        for step in range(1, seed + 1):
            bits[step::333] += step
        found[f"layer.{dtype}"] = bits % 2 == 1 if dtype == torch.bool else bits.view(dtype).reshape(2, -1)
    return found | {"scalar": torch.tensor(float(seed)), "empty": torch.zeros(0, 3)}


def model(folder: Path, seed: int) -> Path:
    file = folder / f"{seed}.safetensors"
    save_file(tensors(seed), file, metadata={"seed": str(seed)})
    return file


def content(base: Path, *deltas: Path) -> bytes:
    return b"".join(bytes(part) for part in rebuilt(base, deltas))


def test_a_chain_of_differences_gives_each_file_byte_for_byte(tmp_path: Path) -> None:
    files = [model(tmp_path, seed) for seed in range(4)]
    deltas = [tmp_path / f"{seed}.delta" for seed in range(1, 4)]
    for old, new, delta in zip(files, files[1:], deltas, strict=False):
        assert write_delta(old, new, delta)
        assert delta.stat().st_size < new.stat().st_size / 3
    for count in range(1, 4):
        assert content(files[0], *deltas[:count]) == files[count].read_bytes()


def test_files_of_other_tensors_have_no_difference(tmp_path: Path) -> None:
    old, other = model(tmp_path, 0), tmp_path / "other.safetensors"
    save_file({"layer": torch.zeros(3)}, other)
    (tmp_path / "text").write_text("no safetensors")
    for new in (other, tmp_path / "text"):
        assert not write_delta(old, new, tmp_path / "delta")
        assert not (tmp_path / "delta").exists()
    assert write_delta(old, model(tmp_path, 1), tmp_path / "delta")
    with pytest.raises(DeltaDamaged, match=r"delta is of other tensors than .*other\.safetensors"):
        content(other, tmp_path / "delta")


def test_a_delta_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    delta = tmp_path / "delta"
    old, new = model(tmp_path, 0), model(tmp_path, 1)
    assert write_delta(old, new, delta)
    whole = delta.read_bytes()
    for size, message in ((len(whole) - 1, "ends 1 bytes too early"), (30, "header of .* cannot be"), (3, "is not a")):
        delta.write_bytes(whole[:size])
        with pytest.raises(DeltaDamaged, match=f"{delta}.*{message}|{message}.*") as caught:
            content(old, delta)
        assert str(delta) in str(caught.value)
