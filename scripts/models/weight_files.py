"""What the safetensors files of a model folder hold, by their headers: no weight is read."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INDEX = "model.safetensors.index.json"
LONGEST_HEADER = 100_000_000  # bytes, the limit of the format


class UnreadableWeights(Exception):
    """A file is missing or damaged; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFiles:
    """The tensors of a folder, all files together."""

    num_files: int
    num_tensors: int
    num_parameters: int
    num_bytes: int
    dtypes: tuple[str, ...]  # in safetensors' names, the most frequent first


def read_weight_files(folder: Path) -> WeightFiles:
    """The tensors of `model.safetensors`, or of the files that the index lists. Raises UnreadableWeights."""
    tensors: dict[str, dict[str, Any]] = {}
    files = _files(folder)
    for file in files:
        tensors |= _header(file)
    if wanted := _indexed(folder).keys() - tensors.keys():
        raise UnreadableWeights(f"{INDEX} lists tensors that no file holds, such as {min(wanted)}")
    counts: dict[str, int] = {}
    for tensor in tensors.values():
        counts[tensor["dtype"]] = counts.get(tensor["dtype"], 0) + math.prod(tensor["shape"])
    return WeightFiles(
        num_files=len(files),
        num_tensors=len(tensors),
        num_parameters=sum(counts.values()),
        num_bytes=sum(file.stat().st_size for file in files),
        dtypes=tuple(sorted(counts, key=lambda name: -counts[name])),
    )


def _files(folder: Path) -> list[Path]:
    indexed = _indexed(folder)
    names = sorted(set(indexed.values())) if indexed else ["model.safetensors"]
    missing = [name for name in names if not (folder / name).is_file()]
    if missing and not indexed and (others := sorted(folder.glob("*.bin"))):
        raise UnreadableWeights(
            f"its weights are {others[0].name}, which Weir does not load: save them as safetensors (transformers: "
            "save_pretrained)"
        )
    if missing:
        raise UnreadableWeights(f"{', '.join(missing)} is missing: get the model again")
    return [folder / name for name in names]


def _indexed(folder: Path) -> dict[str, str]:
    """File by tensor, as the index says; empty without one."""
    try:
        found: dict[str, str] = json.loads((folder / INDEX).read_text())["weight_map"]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError) as error:
        raise UnreadableWeights(f"{INDEX} cannot be read ({error}): get the model again") from error
    return found


def _header(file: Path) -> dict[str, dict[str, Any]]:
    """Shapes and dtypes of a file whose length is what its header says."""
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            if length > LONGEST_HEADER:
                raise ValueError("its header is too long")
            tensors: dict[str, dict[str, Any]] = json.loads(opened.read(length))
        tensors.pop("__metadata__", None)
        end = max((tensor["data_offsets"][1] for tensor in tensors.values()), default=0)
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise UnreadableWeights(f"{file.name} is not a safetensors file ({error}): get the model again") from error
    if (is_long := file.stat().st_size) != 8 + length + end:
        raise UnreadableWeights(
            f"{file.name} has {is_long} bytes and its header says {8 + length + end}: it is cut off or damaged; get "
            "the model again"
        )
    return tensors
