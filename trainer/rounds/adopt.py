"""Weights from elsewhere: a plain Hugging Face folder becomes the newest version, under a new number.

Invariant: it has the tensors of the weights before it, by name and shape, so that engines can load it and rounds can
continue from it. Its files are copied: whoever made them may change them afterwards. Training continues with a fresh
optimiser.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.trainer.errors import VersionError
from weir.trainer.rounds.new_number import enter_numbered, next_number
from weir.trainer.versions.version_folder import (
    MANIFEST,
    Version,
    copy_tokenizer,
    tensor_entries,
    version_path,
    write_version,
)

CONFIG = "config.json"
_TIED = "lm_head.weight"  # is left out of folders whose embeddings are the output layer too


def is_plain(folder: Path) -> bool:
    """Whether a folder holds a model that no version was made of."""
    return (folder / CONFIG).is_file() and not (folder / MANIFEST).exists()


def adopt(catalog: Catalog, store: StoreConfig, folder: Path, *, parent: int, before: Path) -> Version:
    """Make a new version from the weights in `folder`; rounds would start from version `parent` in `before` now.

    The caller holds the lease for rounds. A folder without tokenizer gets the one before. Raises `VersionError` where
    the tensors are others, and `RoundError` while a round is open or where another machine made the same number.
    """
    number = max(next_number(catalog, store), parent + 1)
    _check_tensors(folder, before)

    def write_files(target: Path) -> None:
        copy_tokenizer(before, target)
        copy_tokenizer(folder, target)
        for file in (folder / CONFIG, *folder.glob("*.safetensors"), *folder.glob("*.safetensors.index.json")):
            shutil.copyfile(file, target / file.name)

    version = write_version(
        version_path(store.folder, number),
        write_files,
        version=number,
        parent=None,
        round_id=None,
        config_hash="",
        seed=0,
        groups=[],
    )
    enter_numbered(catalog, store, version)
    return version


def _check_tensors(folder: Path, before: Path) -> None:
    given, expected = tensor_entries(folder), tensor_entries(before)
    if not given:
        raise VersionError(
            f"{folder} has no safetensors: save the model in that form (save_pretrained does), then publish"
        )
    for name in sorted(expected.keys() | given.keys()):
        here, there = given.get(name), expected.get(name)
        if name == _TIED and None in (here, there):
            continue
        if here is None or there is None or here.shape != there.shape:
            seen = "is missing" if here is None else f"has shape {here.shape}"
            wanted = "it is not there" if there is None else f"it has shape {there.shape}"
            raise VersionError(
                f"{folder} is another model: {name} {seen}, and in {before} {wanted}; publish weights of the served "
                "model, or begin a new store with [model] path naming this folder"
            )
