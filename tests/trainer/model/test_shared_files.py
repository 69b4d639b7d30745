"""Files that several ranks write at once, and tensors that are read by rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from weir.trainer.errors import TrainerUsageError
from weir.trainer.model.shared_files import SharedFiles
from weir.trainer.model.stored_names import Place, places
from weir.trainer.model.stored_tensors import BytesRead, StoredTensors


def some_tensors() -> dict[str, torch.Tensor]:
    drawn = torch.Generator().manual_seed(0)
    shapes = {"b": (7, 3), "a": (5,), "c": (2, 2, 3)}
    return {name: torch.randn(shape, generator=drawn) for name, shape in shapes.items()}


def write_together(folder: Path, tensors: dict[str, torch.Tensor], dtype: torch.dtype, file_bytes: int) -> None:
    """As two ranks do: the first has two rows of each tensor, the second the others."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    first, second = (SharedFiles(folder, shapes, dtype, file_bytes=file_bytes) for _ in range(2))
    first.create()
    for name, tensor in tensors.items():
        second.write(name, tensor[2:], 2)
        first.write(name, tensor[:2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_file_is_the_one_that_safetensors_writes(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = some_tensors()
    write_together(tmp_path, tensors, dtype, 1 << 20)
    save_file({name: tensor.to(dtype) for name, tensor in tensors.items()}, tmp_path / "expected", {"format": "pt"})
    assert (tmp_path / "model.safetensors").read_bytes() == (tmp_path / "expected").read_bytes()


def test_large_models_are_divided_and_have_an_index(tmp_path: Path) -> None:
    tensors = some_tensors()
    write_together(tmp_path, tensors, torch.float32, 70)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 4 * (21 + 5 + 12)
    assert sorted(set(index["weight_map"].values())) == [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    for name, file in index["weight_map"].items():
        assert torch.equal(load_file(tmp_path / file)[name], tensors[name])


def test_rows_are_read_and_counted(tmp_path: Path) -> None:
    tensors = some_tensors()
    save_file(tensors, tmp_path / "model.safetensors")
    count = BytesRead()
    stored = StoredTensors(tmp_path, count)
    assert count.rows == 0 < count.rest < 1000
    assert torch.equal(stored.rows("b", 2, 4), tensors["b"][2:4])
    assert count.rows == 2 * 3 * 4
    assert torch.equal(stored.whole("c"), tensors["c"])
    assert "d" not in stored and stored.shape("a") == (5,)


def test_files_that_lack_something_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainerUsageError, match="there are none; save the model in that form"):
        StoredTensors(tmp_path)
    file = tmp_path / "model.safetensors"
    save_file(some_tensors(), file)
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(TrainerUsageError, match=r"c cannot be read: .* ends before byte"):
        StoredTensors(tmp_path).whole("c")
    save_file({"a": torch.zeros(2, dtype=torch.int8)}, file)
    with pytest.raises(TrainerUsageError, match="a is stored as I8, which is not trained"):
        StoredTensors(tmp_path).whole("a")


def test_experts_lie_in_matrices_of_their_own_under_the_names_of_the_family() -> None:
    qwen = {f"l.mlp.experts.{e}.{p}.weight" for e in range(2) for p in ("gate_proj", "up_proj", "down_proj")}
    found = places("l.mlp.experts.gate_up_proj", (2, 8, 3), qwen)
    assert found[1:3] == [
        Place("l.mlp.experts.0.up_proj.weight", 0, 4, 8),
        Place("l.mlp.experts.1.gate_proj.weight", 1, 0, 4),
    ]
    mixtral = {f"l.block_sparse_moe.experts.{e}.{p}.weight" for e in range(2) for p in ("w1", "w2", "w3")}
    assert places("l.mlp.experts.down_proj", (2, 3, 4), mixtral)[1] == Place(
        "l.block_sparse_moe.experts.1.w2.weight", 1, 0, 3
    )
    with pytest.raises(TrainerUsageError, match="the files hold no l"):
        places("l.norm", (3,), qwen)
