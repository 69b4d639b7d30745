"""Adapters of LoRA: merged into their base as the trainer merges them, so that both compute with the same bits.

Invariant: a base is used only where its files have the hashes that the trainer named.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load

from weir.engine.errors import WeightsRefused

A, B = ".lora_A.weight", ".lora_B.weight"
PREFIX = "base_model.model."  # of peft's names

_known: dict[tuple[str, int, int], str] = {}  # path, size and time of the last change → sha256


def merged_weight(weight: torch.Tensor, a: torch.Tensor, b: torch.Tensor, scaling: float) -> torch.Tensor:
    """W + scaling B A."""
    return weight + (b @ a) * scaling


@dataclass(kw_only=True)
class Adapter:
    """The adapter of one version as its parts arrive; `tensors` has peft's names."""

    base: Path
    scaling: float
    dtype: torch.dtype  # of the merged weights
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)

    def add(self, part: bytes) -> None:
        """Take some of the adapter's tensors, as a safetensors file. Raises WeightsRefused."""
        try:
            self.tensors |= load(part)
        except SafetensorError as error:
            raise WeightsRefused(f"the adapter cannot be read: {error}") from error

    def merged(self) -> Iterator[tuple[str, torch.Tensor]]:
        """All tensors of the base, the adapted ones with their adapters. Raises WeightsRefused where one fits none."""
        left = dict(self.tensors)
        for file in sorted(self.base.glob("*.safetensors")):
            with safe_open(str(file), framework="pt", device="cpu") as tensors:
                for name in tensors.keys():  # noqa: SIM118 - safe_open is no mapping
                    weight = tensors.get_tensor(name).to(torch.float32)
                    layer = PREFIX + name.removesuffix(".weight")
                    if layer + A in left and layer + B in left:
                        weight = self._with_adapter(name, weight, left.pop(layer + A), left.pop(layer + B))
                    yield name, weight.to(self.dtype)
        if left:
            raise WeightsRefused(f"{min(left)} of the adapter belongs to no tensor of {self.base}")

    def _with_adapter(self, name: str, weight: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if a.ndim != 2 or b.ndim != 2 or (len(b), len(a), a.shape[1]) != (len(weight), b.shape[1], weight.shape[1]):
            shapes = f"{list(b.shape)} and {list(a.shape)}"
            raise WeightsRefused(f"the adapter of {name} has the shapes {shapes}, and the base {list(weight.shape)}")
        return merged_weight(weight, a.to(torch.float32), b.to(torch.float32), self.scaling)


def found_base(folders: Iterable[Path], files: Mapping[str, str]) -> Path:
    """The first of the folders whose safetensors have these hashes. Raises WeightsRefused where there is none."""
    looked = []
    for folder in dict.fromkeys(folders):
        looked.append(str(folder))
        if base_files(folder) == dict(files):
            return folder
    raise WeightsRefused(
        f"the adapter's base is not here: none of {', '.join(looked)} has the safetensors that it was trained on; copy "
        "the base there, or start this engine on it"
    )


def base_files(folder: Path) -> dict[str, str]:
    """The sha256 of the safetensors of a folder, by their names; a file that has not changed is read once."""
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        state = file.stat()
        key = (str(file.resolve()), state.st_size, state.st_mtime_ns)
        if key not in _known:
            with file.open("rb") as content:
                _known[key] = hashlib.file_digest(content, "sha256").hexdigest()
        found[file.name] = _known[key]
    return found
