"""`weir bench publish`: size and speed of versions as exact differences to their parents.

Versions are those of AdamW steps in float32 at a small learning rate, on random tokens, written in bfloat16 as a round
writes them. Rates are bytes of whole weights by seconds of CPU of one core, with files in the page cache; copying the
same file through memory is the yardstick in the same run. Every rebuilt file is compared with the written one.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from weir.scripts.bench.figures import print_figures
from weir.scripts.bench.random_model import write_random_model
from weir.scripts.launch.errors import UsageError
from weir.trainer.versions.delta_file import rebuilt, write_delta

TOKENS = 256  # of a step


def main(model: Path | None, steps: int, lr: float, *, only_last: bool) -> None:
    """Measure, and print the figures as JSON: of each step, unless `only_last`, then of all.

    Raises UsageError where the model is no Hugging Face folder.
    """
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="weir-bench-publish-") as name:
        folder = Path(name)
        if model is None:
            model = folder / "model"
            write_random_model(model)
        elif not (model / "config.json").exists():
            raise UsageError(f"{model} is no Hugging Face folder: it has no config.json")
        files = versions(model, folder, steps, lr)
        measured = []
        old = next(files)
        for new in files:
            measured.append(figures_of(old, new, folder / "delta"))
            if not only_last:
                print_figures(measured[-1])
            old.unlink()
            old = new
    medians = {key: statistics.median(one[key] for one in measured) for key in measured[0]}
    share = max(one["delta_share"] for one in measured)
    print_figures(medians | {"delta_share": share, "lr": lr, "steps": steps, "load": round(os.getloadavg()[0], 1)})


def versions(model: Path, folder: Path, steps: int, lr: float) -> Iterator[Path]:
    """The weights of a model in bfloat16, before the first step and after each."""
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    optimizer = torch.optim.AdamW(network.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.0)
    draw = torch.Generator().manual_seed(0)
    for step in range(steps + 1):
        if step:
            ids = torch.randint(0, network.config.vocab_size, (1, TOKENS), generator=draw)
            network(ids, labels=ids).loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        file = folder / f"{step}.safetensors"
        save_file({name: value.detach().bfloat16().clone() for name, value in network.named_parameters()}, file)
        yield file


def figures_of(old: Path, new: Path, delta: Path) -> dict[str, float]:
    """Size and rates of one difference. Raises AssertionError where it does not lead to the same bytes."""
    size, started = new.stat().st_size, time.process_time()
    whole = new.read_bytes()
    copied = time.process_time()
    assert write_delta(old, new, delta)
    encoded = time.process_time()
    for _ in rebuilt(old, [delta]):
        pass
    applied = time.process_time()
    digest = hashlib.sha256()
    for part in rebuilt(old, [delta]):
        digest.update(part)
    verified = time.process_time()
    assert digest.digest() == hashlib.sha256(whole).digest(), "the rebuilt file differs"
    gigabytes = size / 1e9
    return {
        "model_bytes": size,
        "delta_share": delta.stat().st_size / size,
        "encode_gb_per_s": gigabytes / (encoded - copied),
        "apply_gb_per_s": gigabytes / (applied - encoded),
        "encode_apply_gb_per_s": gigabytes / (applied - copied),
        "apply_verified_gb_per_s": gigabytes / (verified - applied),
        "read_gb_per_s": gigabytes / (copied - started),
    }
