"""A version's weights in blocks of float8, as SGLang's engines and checkpoints of DeepSeek and Qwen have them.

Every matrix of a layer is stored as float8_e4m3fn, with a float32 factor for each block of 128 × 128 values
(`weight_scale_inv`): the largest magnitude of the block over 448, the largest number of that type. Embeddings, head,
norms, biases and routers of experts stay as they are. The numbers are those of transformers' own quantiser.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from weir.trainer.versions.delta_file import SUFFIX
from weir.trainer.versions.version_folder import ADAPTER_BASE, MANIFEST, is_model_file

BLOCK = 128  # values on a side of a block
SCALE = "_scale_inv"  # ends the name of the factors of a weight's blocks
LARGEST = 448.0  # of float8_e4m3fn
INDEX = "model.safetensors.index.json"
_LEFT_OUT = (MANIFEST, INDEX, "config.json", "lora.json", ADAPTER_BASE)


def quantised(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows, width) → float8_e4m3fn of the same shape, and the factors of its blocks, float32."""
    rows, width = weight.shape
    padded = torch.zeros(-(-rows // BLOCK) * BLOCK, -(-width // BLOCK) * BLOCK)
    padded[:rows, :width] = weight.to(torch.float32)
    blocks = padded.view(padded.shape[0] // BLOCK, BLOCK, -1, BLOCK)
    largest = blocks.abs().amax(dim=(1, 3))
    scale = torch.where(largest > 0, LARGEST / largest.where(largest > 0, torch.ones(())), torch.ones(()))
    values = (blocks * scale[:, None, :, None]).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
    return values.view_as(padded)[:rows, :width].contiguous(), 1.0 / scale


def is_quantised(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor is one of those that are stored in float8."""
    return len(shape) == 2 and ".layers." in name and name.endswith(".weight") and not name.endswith("gate.weight")


def write_fp8(folder: Path, target: Path) -> None:
    """Write the model of a version's folder, in this form, into an existing one. Raises OSError."""
    places: dict[str, str] = {}
    kept = {"lm_head"}  # the modules that stay as they are
    total = 0
    for file in sorted(folder.glob("*.safetensors")):
        written: dict[str, torch.Tensor] = {}
        with safe_open(str(file), framework="pt", device="cpu") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - safe_open is no mapping
                tensor = tensors.get_tensor(name)
                if is_quantised(name, tuple(tensor.shape)):
                    written[name], written[name + SCALE] = quantised(tensor)
                else:
                    written[name] = tensor
                    kept |= {name.removesuffix(".weight")} if name.endswith(".weight") else set()
        try:
            save_file(written, target / file.name, metadata={"format": "pt"})
        except SafetensorError as error:
            raise OSError(f"{target / file.name} cannot be written: {error}; make room there") from error
        places |= dict.fromkeys(written, file.name)
        total += sum(tensor.nbytes for tensor in written.values())
    if len(set(places.values())) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": places}
        (target / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
    _write_config(folder, target, sorted(kept))
    for file in folder.iterdir():
        weights = file.name.endswith((".safetensors", SUFFIX))
        if is_model_file(file.name) and file.name not in _LEFT_OUT and not weights:
            shutil.copyfile(file, target / file.name)


def _write_config(folder: Path, target: Path, kept: list[str]) -> None:
    config: dict[str, Any] = json.loads((folder / "config.json").read_bytes())
    config["quantization_config"] = {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [BLOCK, BLOCK],
        "modules_to_not_convert": kept,
    }
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n")
