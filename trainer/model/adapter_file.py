"""The adapter of a version's published weights, as others take it: in peft's names, and as a folder that peft reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save, save_file

from weir.engine.transfer.adapter import PREFIX, A, B, base_files
from weir.trainer.errors import VersionError
from weir.trainer.model.lora import ADAPTER_FILE, PUBLISHED_FILE, SHAPE_FILE, LoraShape
from weir.trainer.settings.lora import LoraSettings
from weir.trainer.versions.version_folder import ADAPTER_BASE, read_manifest

FILES = (ADAPTER_FILE, PUBLISHED_FILE, SHAPE_FILE, ADAPTER_BASE)  # of a version


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterFile:
    """An adapter, and what it is merged into: a folder, and the sha256 of its safetensors."""

    base: str
    base_files: dict[str, str]
    shape: LoraShape
    tensors: dict[str, torch.Tensor]  # float32, in peft's names

    def parts(self, part_bytes: int) -> Iterator[bytes]:
        """The tensors as safetensors files of at most so many bytes, or of one layer."""
        held: dict[str, torch.Tensor] = {}
        for name, tensor in self.tensors.items():
            if held and sum(t.nbytes for t in held.values()) + tensor.nbytes > part_bytes:
                yield save(held)
                held = {}
            held[name] = tensor
        yield save(held)


def read_published(folder: Path) -> AdapterFile:
    """The adapter that is merged into the published weights of a version. Raises `VersionError` without one."""
    file = folder / (PUBLISHED_FILE if (folder / PUBLISHED_FILE).exists() else ADAPTER_FILE)
    if not (folder / ADAPTER_BASE).exists():
        raise VersionError(f"{folder} has no adapter with a base that is named: no LoRA round made it")
    try:
        base, shape = (json.loads((folder / name).read_bytes()) for name in (ADAPTER_BASE, SHAPE_FILE))
        adapters: dict[str, torch.Tensor] = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise VersionError(f"cannot load the adapter of {folder}: {error}") from error
    return AdapterFile(
        base=base["path"],
        base_files=base["files"],
        shape=LoraShape(rank=shape["rank"], alpha=shape["alpha"], targets=tuple(shape["targets"])),
        tensors={_peft_name(name): tensor.to(torch.float32) for name, tensor in adapters.items()},
    )


def zero_adapter(folder: Path, settings: LoraSettings) -> AdapterFile:
    """The adapter that changes nothing of a folder's weights, in the form of the settings. Raises `VersionError`."""
    rank, targets = settings.lora_rank or 1, tuple(settings.lora_targets)
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in read_manifest(folder).tensors.items():
        layer, _, kind = name.rpartition(".")
        if kind == "weight" and layer.rpartition(".")[2] in targets:
            outputs, inputs = tensor.shape
            tensors[f"{PREFIX}{layer}{A}"] = torch.zeros(rank, inputs)
            tensors[f"{PREFIX}{layer}{B}"] = torch.zeros(outputs, rank)
    if not tensors:
        raise VersionError(f"{folder} has none of the layers that lora_targets names: {', '.join(targets)}")
    shape = LoraShape(rank=rank, alpha=settings.lora_alpha, targets=targets)
    return AdapterFile(base=str(folder), base_files=base_files(folder), shape=shape, tensors=tensors)


def write_peft(adapter: AdapterFile, target: Path) -> None:
    """Write an adapter into an existing folder, as peft reads it. Raises OSError."""
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": adapter.base,
        "r": adapter.shape.rank,
        "lora_alpha": adapter.shape.alpha,
        "target_modules": list(adapter.shape.targets),
        "bias": "none",
    }
    (target / "adapter_config.json").write_text(json.dumps(settings, indent=2))
    try:
        save_file(adapter.tensors, target / "adapter_model.safetensors", metadata={"format": "pt"})
    except SafetensorError as error:
        raise OSError(f"the adapter cannot be written: {error}") from error


def _peft_name(name: str) -> str:
    return PREFIX + name.removeprefix("network.").replace(".default.", ".")
