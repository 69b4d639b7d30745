"""LoRA (arXiv 2106.09685): trained adapters beside frozen weights, merged into them for engines.

A linear layer computes W x + (alpha / rank) B A x, of which only A, with shape (rank, inputs), and B, with shape
(outputs, rank), are trained; B starts at zero. Invariant: the frozen weights are those of the base folder, so switching
the adapters off gives the base model; published weights are W + (alpha / rank) B A, rounded once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from weir.engine.transfer.adapter import base_files, merged_weight
from weir.trainer.errors import TrainerUsageError, VersionError
from weir.trainer.versions.version_folder import ADAPTER_BASE, file_entry

ADAPTER_FILE = "lora_adapter.pt"  # the adapters' float32 weights, under the names that peft saves
PUBLISHED_FILE = "lora_published.pt"  # those that are merged into the published weights, where they are others
SHAPE_FILE = "lora.json"
_BASE, _A, _B = ".base_layer.weight", ".lora_A.default.weight", ".lora_B.default.weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraShape:
    """The form of the adapters."""

    rank: int
    alpha: float
    targets: tuple[str, ...]

    @property
    def scaling(self) -> float:
        """The factor of B A."""
        return self.alpha / self.rank


def add_adapters(network: Any, shape: LoraShape, seed: int) -> None:
    """Put adapters beside the named linear layers of a network and freeze its own weights.

    A is drawn from `seed`, B is zero. Raises `TrainerUsageError` where peft is missing or a name fits no linear layer.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise TrainerUsageError('lora_rank needs peft: pip install "weir-rl[lora]"') from error
    linear = {name.rpartition(".")[2] for name, part in network.named_modules() if isinstance(part, torch.nn.Linear)}
    if wrong := sorted(set(shape.targets) - linear | set(shape.targets) & {"lm_head"}):
        raise TrainerUsageError(
            f"lora_targets names {wrong[0]}, which is no linear layer that can have an adapter here; there are: "
            f"{', '.join(sorted(linear - {'lm_head'}))}"
        )
    torch.manual_seed(seed)
    config = LoraConfig(r=shape.rank, lora_alpha=shape.alpha, target_modules=list(shape.targets))  # type: ignore[arg-type]
    inject_adapter_in_model(config, network)


@contextmanager
def adapters_off(network: Any) -> Iterator[None]:
    """Within the block the network computes what its frozen weights alone give."""
    from peft.tuners.lora import LoraLayer

    layers = [part for part in network.modules() if isinstance(part, LoraLayer)]
    for layer in layers:
        layer._disable_adapters = True
    try:
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False


def merged(weights: Mapping[str, torch.Tensor], shape: LoraShape) -> dict[str, torch.Tensor]:
    """A state dict with adapters as one without: W + scaling B A under W's own name."""
    plain = {name: weight for name, weight in weights.items() if not is_adapter(name) and not name.endswith(_BASE)}
    for name in (name for name in weights if name.endswith(_BASE)):
        layer = name.removesuffix(_BASE)
        a, b = weights[layer + _A], weights[layer + _B]
        plain[f"{layer}.weight"] = merged_weight(weights[name], a, b, shape.scaling)
    return plain


def adapters_of(name: str) -> tuple[str, str] | None:
    """The names of A and B beside a frozen weight; None for a weight without adapters."""
    return (name.replace(_BASE, _A), name.replace(_BASE, _B)) if name.endswith(_BASE) else None


def save_adapters(
    weights: Mapping[str, torch.Tensor],
    shape: LoraShape,
    folder: Path,
    *,
    base: Path,
    published: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Write the adapters of a state dict, their form and what they were trained on. Raises OSError.

    `published`: the state dict whose adapters are merged into the published weights, where it is another one.
    """
    (folder / SHAPE_FILE).write_text(json.dumps(asdict(shape), sort_keys=True))
    named = {"path": str(base.absolute()), "files": base_files(base)}
    (folder / ADAPTER_BASE).write_text(json.dumps(named, sort_keys=True))
    _save(weights, folder / ADAPTER_FILE)
    if published is not None:
        _save(published, folder / PUBLISHED_FILE)


def _save(weights: Mapping[str, torch.Tensor], file: Path) -> None:
    adapters = {name: weight.contiguous() for name, weight in weights.items() if is_adapter(name)}
    try:
        torch.save(adapters, file)
    except RuntimeError as error:  # a full disk
        raise OSError(f"{file} could not be written ({error})") from error


def has_adapters(folder: Path) -> bool:
    """Whether a version folder was trained with LoRA."""
    return (folder / SHAPE_FILE).exists()


def read_adapters(folder: Path, shape: LoraShape) -> dict[str, torch.Tensor]:
    """The adapters of a version folder. Raises `VersionError` where they are damaged or have another form."""
    try:
        known = json.loads((folder / SHAPE_FILE).read_bytes())
        adapters: dict[str, torch.Tensor] = torch.load(folder / ADAPTER_FILE, map_location="cpu", weights_only=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise VersionError(f"cannot load the adapters of {folder}: {error}") from error
    wanted = json.loads(json.dumps(asdict(shape)))
    if known != wanted:
        raise VersionError(
            f"{folder} has adapters of another form: {known}, and the settings say {wanted}; set lora_rank, lora_alpha "
            "and lora_targets as they were, or begin a new store from these weights"
        )
    return adapters


def check_base(folder: Path, base: Path, weights: Mapping[str, torch.Tensor], shape: LoraShape, dtype: Any) -> None:
    """Raise `VersionError` where a version's weights are not those of the base with its adapters.

    One adapted layer is compared, to the bit.
    """
    layer = next(name.removesuffix(_BASE) for name in weights if name.endswith(_BASE))
    some = {name: weight for name, weight in weights.items() if name.startswith(layer + ".")}
    found = merged(some, shape)[f"{layer}.weight"].to(dtype)
    stored = _stored_tensor(folder, f"{layer}.weight".removeprefix("network."))
    if stored is None or stored.dtype != found.dtype or not torch.equal(stored, found):
        raise VersionError(
            f"the weights of {folder} are not those of {base} with their adapters; name the model that the LoRA rounds "
            "began with ([model] path), and the same precision"
        )


def check_first_weights(folder: Path, base: Path) -> None:
    """Raise `TrainerUsageError` where a folder without adapters has other weights than the base of LoRA."""
    files = [{f.name: file_entry(f) for f in sorted(place.glob("*.safetensors"))} for place in (folder, base)]
    if files[0] != files[1]:
        raise TrainerUsageError(
            f"LoRA begins with {base}, and the newest weights are others, in {folder}; copy that folder to a place "
            "that stays, and set [model] path to the copy"
        )


def _stored_tensor(folder: Path, name: str) -> torch.Tensor | None:
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="pt") as content:
            if name in content.keys():  # noqa: SIM118 - not a dict
                found: torch.Tensor = content.get_tensor(name)
                return found
    return None


def is_adapter(name: str) -> bool:
    """Whether a name in a state dict is that of an adapter's matrix."""
    return name.endswith((_A, _B))
