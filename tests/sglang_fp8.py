"""What SGLang's own code makes of a folder in float8, run by its environment's Python: FOLDER, and a file to write to.

The file gets every weight as SGLang multiplies it out, in float32; the output is one line of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def refusal(config: Any, rows: list[int], width: int) -> str | None:
    """Why SGLang makes no layer of joined projections of so many rows each; None where it makes one."""
    import torch
    from sglang.srt.layers.quantization.fp8 import Fp8LinearMethod

    layer = torch.nn.Module()
    layer.tp_group = None
    try:
        Fp8LinearMethod.create_fp8_weight_(
            layer, True, config, False, sum(rows), width, rows, width, sum(rows), torch.bfloat16, None, True
        )
    except ValueError as error:
        return str(error)
    return None


def main(folder: Path, target: Path) -> None:
    """Read the folder as a checkpoint."""
    import torch
    from safetensors.torch import load_file, save_file
    from sglang.srt.layers.quantization.fp8 import Fp8Config, Fp8LinearMethod
    from sglang.srt.layers.quantization.fp8_utils import block_quant_dequant
    from sglang.srt.layers.quantization.utils import is_layer_skipped

    config = Fp8Config.from_config(json.loads((folder / "config.json").read_bytes())["quantization_config"])
    held = load_file(folder / "model.safetensors")
    read, left, shapes = {}, [], {}
    for name in [name for name in held if name.endswith("_proj.weight") or "gate" in name or "lm_head" in name]:
        if is_layer_skipped(name.removesuffix(".weight"), config.ignored_layers):
            left.append(name)
            continue
        weight, factors = held[name], held[f"{name}_scale_inv"]
        layer = torch.nn.Module()
        layer.tp_group = None
        (rows, width), own = weight.shape, torch.bfloat16
        Fp8LinearMethod.create_fp8_weight_(
            layer, True, config, False, rows, width, [rows], width, rows, own, None, True
        )
        shapes[name] = {part: [list(held_as.shape), str(held_as.dtype)] for part, held_as in layer.named_parameters()}
        read[name] = block_quant_dequant(weight, factors, config.weight_block_size, torch.float32)
    save_file(read, target)
    joined = {str(rows): refusal(config, rows, 256) for rows in ([256, 128, 128], [192, 64, 64])}
    print(json.dumps({"blocks": config.weight_block_size, "left": left, "shapes": shapes, "joined": joined}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
