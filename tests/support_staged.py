"""Versions of a tiny model that differ in a few weights, and `weir stage` as a process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from weir.store.config import StoreConfig
from weir.trainer.versions.object_store import share_version
from weir.trainer.versions.stored import base_of_next, thin
from weir.trainer.versions.version_folder import Version, version_path, write_version

LIMIT_S = 240.0


def write_stored(root: Path, number: int, write_files: Callable[[Path], None], *, full_every: int) -> Version:
    """Version `number` as a round writes it, with its difference to the one before where there is to be one."""
    return write_version(
        version_path(root, number),
        write_files,
        version=number,
        parent=number - 1,
        round_id=number,
        config_hash="",
        seed=0,
        groups=[],
        base=base_of_next(root, number - 1, full_every),
    )


def write_next(store: StoreConfig, model: Path, number: int) -> Version:
    """Version `number`: the weights of `model`, of which a few more are changed with each number; shared."""

    def write_files(folder: Path) -> None:
        shutil.copytree(model, folder, dirs_exist_ok=True)
        weights = load_file(folder / "model.safetensors")
        for step in range(1, number + 1):
            for values in weights.values():
                values.view(-1)[step::97] += torch.tensor(0.02 * step, dtype=values.dtype)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        for name in ("trainer_state.pt", "critic.pt", "metrics.json"):
            (folder / name).write_bytes(bytes(1000))

    version = write_stored(store.folder, number, write_files, full_every=100)
    share_version(store, version)
    thin(store.folder)
    return version


def start_stage(folder: Path, engine: str, root: Path, log: Path, *more: str) -> subprocess.Popen[bytes]:
    """`weir stage` over a root, with `more` options, until it is stopped; what it says is appended to `log`."""
    command = [sys.executable, "-u", "-m", "weir.scripts.cli.main", "stage", str(folder), "--engine", engine]
    with log.open("ab") as said:
        return subprocess.Popen(
            [*command, "--root", str(root), "--every", "0.1", *more],
            stdout=said,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )


def wait_until(state: Callable[[], bool], what: str, log: Path) -> None:
    """Return once `state()` holds; fails with the log after a generous limit."""
    deadline = time.monotonic() + LIMIT_S
    while not state():
        assert time.monotonic() < deadline, f"not {what} within {LIMIT_S:.0f} s: {log.read_text(errors='replace')}"
        time.sleep(0.1)
