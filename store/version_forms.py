"""Which folder of a version engines load: beside `<8 digits>/` may be the same weights in another form.

`<8 digits>.fp8/` or `<8 digits>.lora/` is there exactly where the version was published last in that form
(`publish.form`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

FP8 = ".fp8"
LORA = ".lora"  # peft's folder of an adapter, which engines load beside their base
SERVED_AS = "served_as.json"  # in it
BASE = "base"  # what an engine reports while no adapter is loaded, in place of a version


class ServedAdapter(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine is to serve an adapter."""

    name: str  # that calls name it by
    base: str  # the folder that it was trained beside
    base_files: dict[str, str]  # the sha256 of each of its safetensors

    def requests(self, folder: Path, version: str, *, is_loaded: bool) -> list[tuple[str, dict[str, Any]]]:
        """What a paused engine of SGLang is asked in turn, to serve the adapter in a folder in place of another one.

        `is_loaded`: it serves one of this name, which the calls that it answers hold until they are aborted.
        """
        name = {"lora_name": self.name}
        return [
            ("/update_weight_version", {"new_version": BASE}),
            *([("/unload_lora_adapter", name)] if is_loaded else []),
            ("/load_lora_adapter", name | {"lora_path": str(folder)}),
            ("/update_weight_version", {"new_version": version}),
        ]

    def is_among(self, models: dict[str, Any]) -> bool:
        """Whether an engine that answers `/v1/models` so serves an adapter of this name."""
        return any(model["id"] == self.name and model.get("parent") for model in models.get("data", ()))


def fp8_folder(folder: Path) -> Path:
    """Where the quantised weights of a version's folder are, if there are any; that folder itself stays what it is."""
    return folder if folder.name.endswith(FP8) else folder.with_name(folder.name + FP8)


def adapter_folder(folder: Path) -> Path:
    """Where the adapter of a version's folder is, if it was published as one."""
    return folder.with_name(folder.name + LORA)


def other_forms(folder: Path) -> list[Path]:
    """The folders beside a version's own that hold it in another form."""
    return [form for form in (fp8_folder(folder), adapter_folder(folder)) if form != folder and form.is_dir()]


def loaded_by_engines(folder: Path) -> Path:
    """The folder that an engine starts with for a version; one that is to serve an adapter starts with its base."""
    return quantised if (quantised := fp8_folder(folder)).is_dir() else folder


def published(folder: Path) -> Path:
    """The folder that engines which run get for a version."""
    return adapter if (adapter := adapter_folder(folder)).is_dir() else loaded_by_engines(folder)


def served_adapter(folder: Path) -> ServedAdapter | None:
    """How the adapter in a folder is served; None where the folder holds whole weights. Raises OSError, ValueError."""
    file = folder / SERVED_AS
    return msgspec.json.decode(file.read_bytes(), type=ServedAdapter) if file.exists() else None
