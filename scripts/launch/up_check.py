"""`weir up --check`: what would keep the servers of weir.toml from starting, all at once, without starting any."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.fleet import check_ports, fleet, found_model, listening_ports, needs_router
from weir.scripts.launch.settings import Settings


def settings_problems(settings: Settings) -> Iterator[str]:
    """Settings that contradict each other; the same on every machine."""
    places: dict[tuple[str, int], list[str]] = defaultdict(list)
    for name, host, port in listening_ports(settings):
        places[host, port].append(name)
    for (host, port), names in places.items():
        if port and len(names) > 1:
            yield f"{' and '.join(names)} are all {host}:{port}: set different ports"
    if not settings.engine.count and not needs_router(settings):
        if "upstream_url" not in settings.proxy.model_fields_set:
            yield (
                "engine.count = 0, so nothing is served here: set engine.urls to the engines that run elsewhere, or "
                "proxy.upstream_url to the router in front of them"
            )
        if not settings.trainer.engine_urls:
            yield "engine.count = 0 and trainer.engine_urls is empty: rounds would publish to no engine; name them"
    if settings.trainer.processes > 1 and settings.trainer.device == "cpu":
        yield "trainer.processes is above 1 with trainer.device = cpu: processes are for GPUs; set one of them"


def machine_problems(settings: Settings, config: Path | None) -> Iterator[str]:
    """What this machine lacks: the model, free ports, GPUs, programs, a folder to write."""
    for check in (lambda: fleet(settings, config), lambda: check_ports(settings)):
        try:
            check()
        except UsageError as error:
            yield str(error)
    model = found_model(settings)
    if model is not None and not (model / "config.json").exists():
        yield f"model.path = {model} is not a Hugging Face folder: it has no config.json; `weir model get` makes one"
    yield from _device_problems(settings)
    yield from _folder_problems(settings.store.folder)


def _device_problems(settings: Settings) -> Iterator[str]:
    import torch

    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if settings.engine.count and settings.engine.device == "cuda" and not there:
        yield "engine.device = cuda, and torch finds no GPU: set engine.device = cpu, or install a driver"
    here = settings.trainer.processes // settings.trainer.launch.nodes
    if settings.trainer.device == "cuda" and there < here:
        yield f"{here} of trainer.processes need a GPU each on this machine, and torch finds {there}: lower it"


def _folder_problems(folder: Path) -> Iterator[str]:
    place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not place.is_dir() or not os.access(place, os.W_OK):
        yield f"store.root = {folder} cannot be written: {place} is no folder that this user may write; name another"
