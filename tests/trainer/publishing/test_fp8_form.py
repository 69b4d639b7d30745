"""Blocks of float8: the numbers of transformers' own quantiser, and by hand where a block is cut off."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize

from weir.engine.errors import WeightsRefused
from weir.engine.weights import SCALE, dequantised, is_fp8
from weir.trainer.publishing.fp8_form import INDEX, quantised, write_fp8

BLOCKWISE = SimpleNamespace(quantization_config=SimpleNamespace(weight_block_size=(128, 128), scale_fmt="float"))


def weight(rows: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    values = torch.randn(rows, width, generator=torch.Generator().manual_seed(3)) * 0.02
    values[:128, :128] = 0
    values[130, 5] = 40.0  # an outlier
    return values.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_and_factors_are_those_of_transformers(dtype: torch.dtype) -> None:
    given = weight(256, 384, dtype)
    theirs = Fp8Quantize(BLOCKWISE).convert({"a.weight": given})
    values, factors = quantised(given)
    assert values.dtype == torch.float8_e4m3fn
    assert torch.equal(values.view(torch.uint8), theirs["a.weight"].view(torch.uint8))
    assert torch.equal(factors, theirs["a.weight_scale_inv"])
    back = dequantised("a.weight", values, {"a.weight" + SCALE: factors})
    assert torch.equal(back, Fp8Dequantize(BLOCKWISE)._dequantize_one(values, factors).to(torch.float32))
    assert not back[:128, :128].any()
    step = given.float().abs().amax() / 448 * 32  # of the largest numbers of the type
    assert (back - given.float()).abs().max() <= step / 2


def test_blocks_that_are_cut_off_have_factors_of_their_own() -> None:
    given = weight(150, 200, torch.float32)
    values, factors = quantised(given)
    assert (values.shape, factors.shape) == (given.shape, (2, 2))
    for row in range(2):
        for column in range(2):
            block = (slice(128 * row, 128 * row + 128), slice(128 * column, 128 * column + 128))
            scale = 448 / given[block].abs().max() if given[block].any() else torch.ones(())
            expected = (given[block] * scale).clamp(-448, 448).to(torch.float8_e4m3fn)
            assert torch.equal(values[block].view(torch.uint8), expected.view(torch.uint8))
            assert factors[row, column] == 1 / scale
    for wrong in ({}, {"a.weight" + SCALE: factors[:1]}):
        with pytest.raises(WeightsRefused, match=r"a\.weight of shape \[150, 200\] is in float8"):
            dequantised("a.weight", values, wrong)


def test_a_folder_of_several_files_has_an_index_and_says_what_stays(tmp_path: Path) -> None:
    folder, target = tmp_path / "version", tmp_path / "fp8"
    folder.mkdir()
    target.mkdir()
    first = {
        "model.layers.0.mlp.up_proj.weight": torch.randn(128, 128),
        "model.layers.0.mlp.gate.weight": torch.ones(4, 8),
    }
    second = {"model.embed_tokens.weight": torch.randn(8, 8), "model.layers.0.self_attn.q_proj.bias": torch.ones(3)}
    for number, tensors in enumerate((first, second)):
        save_file(tensors, folder / f"model-{number}.safetensors")
    (folder / "config.json").write_text('{"model_type": "qwen3"}')
    for name in ("tokenizer.json", "trainer_state.pt", "lora.json", "manifest.json"):
        (folder / name).write_text("{}")
    write_fp8(folder, target)
    assert is_fp8(target) and not is_fp8(folder)
    assert {file.name for file in target.iterdir()} == {
        *("model-0.safetensors", "model-1.safetensors", INDEX, "config.json", "tokenizer.json")
    }
    written = load_file(target / "model-0.safetensors")
    assert written["model.layers.0.mlp.up_proj.weight"].dtype == torch.float8_e4m3fn
    assert torch.equal(written["model.layers.0.mlp.gate.weight"], torch.ones(4, 8))
    weight_map = json.loads((target / INDEX).read_text())["weight_map"]
    assert weight_map["model.layers.0.mlp.up_proj.weight_scale_inv"] == "model-0.safetensors"
    quantization = json.loads((target / "config.json").read_text())["quantization_config"]
    assert quantization["weight_block_size"] == [128, 128]
    assert quantization["modules_to_not_convert"] == ["lm_head", "model.embed_tokens", "model.layers.0.mlp.gate"]


def test_what_safetensors_cannot_write_is_an_error_of_the_system(tmp_path: Path) -> None:
    folder, target = tmp_path / "stored", tmp_path / "no_folder"
    folder.mkdir()
    save_file({"model.layers.0.mlp.up_proj.weight": torch.zeros(8, 8)}, folder / "model.safetensors")
    with pytest.raises(OSError, match=r"no_folder/model\.safetensors cannot be written: "):
        write_fp8(folder, target)
