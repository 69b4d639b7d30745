"""Weights: loads a model from a Hugging Face folder, reads new weights for it, and computes checksums.

Invariant: new weights are read completely and checked against the served model's names and shapes, and for finiteness,
before any value changes; otherwise `WeightsRefused` is raised and the old weights stay.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
import xxhash
from safetensors import SafetensorError, safe_open

from weir.engine.errors import ModelError, WeightsRefused

ARCHITECTURES = ("Qwen3ForCausalLM", "Qwen2ForCausalLM", "LlamaForCausalLM", "Qwen3MoeForCausalLM")
_INDEX = "model.safetensors.index.json"
BLOCK = 128  # values on a side of a block of float8, as checkpoints of DeepSeek and Qwen have them
SCALE = "_scale_inv"  # ends the name of the factors of a weight's blocks


def load_model(folder: Path, *, dtype: torch.dtype, device: torch.device) -> Any:
    """The causal language model of `folder`, ready to run. Raises ModelError when it cannot be served."""
    from transformers import AutoConfig, AutoModelForCausalLM

    if not (folder / "config.json").is_file():
        raise ModelError(f"no config.json in {folder}; --model names a Hugging Face folder with safetensors weights")
    config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
    architectures = config.architectures or []
    if not set(architectures) & set(ARCHITECTURES):
        raise ModelError(f"{folder} holds {architectures}; the embedded engine serves {', '.join(ARCHITECTURES)}")
    if any(kind != "full_attention" for kind in getattr(config, "layer_types", None) or ()):
        raise ModelError(f"{folder} has sliding-window layers; the embedded engine serves full attention only")
    how: dict[str, Any] = {"dtype": dtype, "attn_implementation": "sdpa"}
    quantised, mixture = is_fp8(folder), hasattr(config, "num_experts")
    model: Any
    if quantised:
        del config.quantization_config  # else transformers would compute in float8, which a CPU cannot
    if quantised or mixture:
        model = AutoModelForCausalLM.from_config(config, **how)  # type: ignore[no-untyped-call]
        divide_experts(model)
    else:
        model = AutoModelForCausalLM.from_pretrained(str(folder), local_files_only=True, **how)
    try:
        weights = read_weights(folder, model)
    except WeightsRefused as error:
        raise ModelError(f"{folder} cannot be served: {error}") from error
    if quantised or mixture:
        model.load_state_dict(weights, strict=False)  # tied ones lack
    return model.to(device).eval().requires_grad_(False)


def divide_experts(model: Any) -> None:
    """Give each expert matrices of its own, named as files name them; transformers holds those of a layer as one."""
    for layer in model.model.layers:
        mixture = layer.mlp
        if not hasattr(mixture, "experts"):
            continue
        (num_experts, width), kind = mixture.gate.weight.shape, {"bias": False, "dtype": mixture.gate.weight.dtype}
        inner = mixture.experts.intermediate_dim
        shapes = {"gate_proj": (width, inner), "up_proj": (width, inner), "down_proj": (inner, width)}
        mixture.experts = torch.nn.ModuleList(
            torch.nn.ModuleDict({name: torch.nn.Linear(*shape, **kind) for name, shape in shapes.items()})
            for _ in range(num_experts)
        )
        mixture.gate = torch.nn.Linear(width, num_experts, **kind)


def model_version(folder: Path) -> str | None:
    """`version` of the folder's manifest.json, or None where there is none."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError):
        return None
    version = manifest.get("version") if isinstance(manifest, dict) else None
    return None if version is None else str(version)


def read_weights(folder: Path, model: Any) -> dict[str, torch.Tensor]:
    """All tensors of the folder's safetensors files, in the model's dtype. Raises WeightsRefused if they do not fit."""
    wanted = dict(model.state_dict(keep_vars=True))
    read: dict[str, torch.Tensor] = {}
    scales = _scales(folder) if is_fp8(folder) else {}
    for shard in _shards(folder):
        try:
            with safe_open(str(shard), framework="pt", device="cpu") as tensors:
                for name in tensors.keys():  # noqa: SIM118 - safe_open is no mapping
                    if name in scales:
                        continue
                    tensor = tensors.get_tensor(name)
                    tensor = dequantised(name, tensor, scales) if tensor.dtype == torch.float8_e4m3fn else tensor
                    read[name] = checked(name, tensor, wanted)
        except (SafetensorError, OSError) as error:
            raise WeightsRefused(f"cannot read {shard.name}: {error}; write it again") from error
    return whole(read, wanted, str(folder))


def whole(read: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], source: str) -> dict[str, torch.Tensor]:
    """Checked tensors that came from `source`, tied ones once. Raises WeightsRefused unless they are all there."""
    optional = tied_names(wanted)
    if missing := missing_names(read.keys(), wanted):
        raise WeightsRefused(f"{source} lacks {len(missing)} of {len(wanted)} tensors, {missing[0]} among them")
    for name, owner in optional.items():
        if name in read and not torch.equal(read.pop(name), read[owner]):
            raise WeightsRefused(f"{name} differs from {owner}, to which the served model ties it")
    return read


def missing_names(there: Collection[str], wanted: dict[str, torch.Tensor]) -> list[str]:
    """The names of the model's tensors that are not among those that are there; tied ones may lack."""
    return sorted(wanted.keys() - tied_names(wanted).keys() - set(there))


def checksums(tensors: dict[str, torch.Tensor]) -> dict[str, str]:
    """xxh3-64 of every tensor's bytes, by name; tied tensors once, as transformers saves them."""
    tied = tied_names(tensors)
    return {name: checksum(tensor) for name, tensor in tensors.items() if name not in tied}


def checksum(tensor: torch.Tensor) -> str:
    """xxh3-64 of a tensor's bytes."""
    return xxhash.xxh3_64_hexdigest(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)


def tied_names(state: dict[str, torch.Tensor]) -> dict[str, str]:
    """Names that share the memory of an earlier one → that one's name."""
    first: dict[int, str] = {}
    tied: dict[str, str] = {}
    for name, tensor in state.items():
        # Tied names have one parameter, whose memory may have been given back; then it has no address.
        has_memory = tensor.untyped_storage().size() > 0
        owner = first.setdefault(tensor.data_ptr() if has_memory else id(tensor), name)
        if owner != name:
            tied[name] = owner
    return tied


def is_fp8(folder: Path) -> bool:
    """Whether the configuration of a folder says that its weights are in blocks of float8."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return False
    quantization = config.get("quantization_config")
    return isinstance(quantization, dict) and quantization.get("quant_method") == "fp8"


def dequantised(name: str, weight: torch.Tensor, scales: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """A weight in float32: its values times the factors of their blocks. Raises WeightsRefused without fitting ones."""
    scale = scales.get(name + SCALE)
    blocks = [-(-size // BLOCK) for size in weight.shape]
    if weight.ndim != 2 or scale is None or list(scale.shape) != blocks:
        seen = "no factors" if scale is None else f"factors of shape {list(scale.shape)}"
        raise WeightsRefused(f"{name} of shape {list(weight.shape)} is in float8, and has {seen} instead of {blocks}")
    rows, width = weight.shape
    whole = scale.to(torch.float32).repeat_interleave(BLOCK, 0)[:rows].repeat_interleave(BLOCK, 1)[:, :width]
    return weight.to(torch.float32) * whole


def _scales(folder: Path) -> dict[str, torch.Tensor]:
    """The factors of all weights in float8, by their names. Raises WeightsRefused."""
    found: dict[str, torch.Tensor] = {}
    for shard in _shards(folder):
        try:
            with safe_open(str(shard), framework="pt", device="cpu") as tensors:
                found |= {name: tensors.get_tensor(name) for name in tensors.keys() if name.endswith(SCALE)}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise WeightsRefused(f"cannot read {shard.name}: {error}; write it again") from error
    return found


def _shards(folder: Path) -> list[Path]:
    index = folder / _INDEX
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (ValueError, KeyError, AttributeError) as error:
            raise WeightsRefused(f"{index} is not an index of safetensors files: {error!r}") from error
        return [folder / name for name in names]
    single = folder / "model.safetensors"
    if not single.is_file():
        raise WeightsRefused(f"no model.safetensors and no {_INDEX} in {folder}")
    return [single]


def checked(name: str, tensor: torch.Tensor, wanted: dict[str, torch.Tensor]) -> torch.Tensor:
    """A tensor in the dtype of the model's tensor of that name. Raises WeightsRefused where it does not fit it."""
    tensor = tensor.to(fitting(name, tensor, wanted).dtype)
    check_finite(name, tensor)
    return tensor


def fitting(name: str, tensor: torch.Tensor, wanted: dict[str, torch.Tensor]) -> torch.Tensor:
    """The model's tensor of that name. Raises WeightsRefused where the given one cannot take its place."""
    held = wanted.get(name)
    if held is None:
        raise WeightsRefused(f"{name} is no tensor of the served model")
    if tensor.shape != held.shape:
        raise WeightsRefused(f"{name} has shape {list(tensor.shape)}, the served model {list(held.shape)}")
    if not tensor.is_floating_point():
        raise WeightsRefused(f"{name} is of {tensor.dtype}, the served model of {held.dtype}")
    return held


def check_finite(name: str, tensor: torch.Tensor) -> None:
    """Raises WeightsRefused where a value is not finite."""
    # A sum reads the values once; only one that overflows, or has such values, makes the exact answer necessary.
    if not (bool(tensor.sum().isfinite()) or bool(tensor.isfinite().all())):
        raise WeightsRefused(f"{name} holds values that are not finite")
