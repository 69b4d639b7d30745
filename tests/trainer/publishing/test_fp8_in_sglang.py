"""Blocks of float8 as SGLang's own code reads them; its kernels for them need AMX or a GPU, its reading does not."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from sglang_server import ENVIRONMENT, VARIABLE, needs_sglang

from weir.engine.weights import SCALE, dequantised
from weir.trainer.publishing.fp8_form import write_fp8

pytestmark = needs_sglang
READER = Path(__file__).parents[2] / "sglang_fp8.py"
ROWS = {"self_attn.q_proj": (256, 256), "mlp.down_proj": (150, 200)}  # the last blocks of the second one are cut off


def test_sglang_reads_the_weights_that_the_embedded_engine_reads(tmp_path: Path) -> None:
    folder, target = tmp_path / "version", tmp_path / "fp8"
    folder.mkdir()
    target.mkdir()
    random = torch.Generator().manual_seed(5)
    shapes = {f"model.layers.0.{name}.weight": shape for name, shape in ROWS.items()}
    kept = {"lm_head.weight": (8, 256), "model.layers.0.mlp.gate.weight": (4, 256)}
    tensors = {name: torch.randn(shape, generator=random) for name, shape in (shapes | kept).items()}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model_type": "qwen3"}')
    write_fp8(folder, target)

    python = Path(os.environ[VARIABLE]) / "bin" / "python"
    environment = os.environ | ENVIRONMENT
    command = [python, READER, target, tmp_path / "read.safetensors"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    assert said["blocks"] == [128, 128]
    assert sorted(said["left"]) == sorted(kept)

    written, read = load_file(target / "model.safetensors"), load_file(tmp_path / "read.safetensors")
    assert read.keys() == shapes.keys()
    for name, values in read.items():
        assert torch.equal(values, dequantised(name, written[name], written))
        parts = {"weight": written[name], "weight" + SCALE: written[name + SCALE]}
        assert said["shapes"][name] == {part: [list(t.shape), str(t.dtype)] for part, t in parts.items()}
    assert said["joined"]["[256, 128, 128]"] is None
    assert "192 is not divisible" in said["joined"]["[192, 64, 64]"]
