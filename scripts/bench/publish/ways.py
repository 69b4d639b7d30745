"""`weir bench publish --ways`: how fast a version reaches an engine by each way, and how long the gate is closed.

A real embedded engine holds a random model; versions of other weights are published to it by turns, by the code of a
round, by the folder, through shared memory, by broadcast and as differences. Versions differ by a step of AdamW at
1e-6 in random directions, whose difference is made anew each time, as for an engine whose version has none stored. The
peer is memcpy: a copy of the same bytes in buckets of the same size, in the same run. Afterwards versions are sent to
several tiny engines at once, and the bytes that the trainer sends are counted: those written to shared memory, and
those that the kernel counts for its sockets. `sockets` is `distributed` as engines on other machines get it; its floor
and that of shared memory are what the transport alone gives (floors.py). At the end two ranks send to two of
them (by_ranks.py).
"""

from __future__ import annotations

import itertools
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file, save_file

from weir.scripts.bench.figures import print_figures
from weir.scripts.bench.publish.by_ranks import by_ranks
from weir.scripts.bench.publish.floors import memory_rate, sockets_rate
from weir.scripts.bench.publish.reports import figures_of
from weir.scripts.bench.random_model import write_random_model
from weir.scripts.bench.servers import COMMAND, module_server
from weir.scripts.launch.servers import Server, free_port, running
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.trainer.publishing.publish import PublishReport, publish
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.publishing import PublishConfig
from weir.trainer.versions.version_folder import version_path

BUCKET_MB = 64
START_LIMIT_S = 300.0
WAYS: dict[str, dict[str, Any]] = {way: {"way": way} for way in ("disk", "tensor", "distributed", "delta")}
WAYS["sockets"] = {"way": "distributed", "shared_memory": False}
MANY_WAYS = ("tensor", "sockets")
FLOORS = {"tensor": memory_rate, "distributed": memory_rate, "sockets": sockets_rate}
LR = 1e-6


def main(layers: int, rounds: int, engines: int) -> None:
    """Run the benchmark; prints a line for each way, then one JSON object.

    The model has `layers` layers of about 27 MB in bfloat16; `engines` is how many tiny engines one trainer sends to.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures = _one_engine(folder, layers, rounds) | _many_engines(folder, engines, rounds)
    print_figures(figures)


def _one_engine(folder: Path, layers: int, rounds: int) -> dict[str, float]:
    models = [folder / f"large-{seed}" for seed in range(2)]
    write_random_model(models[0], width=1024, layers=layers, dtype="bfloat16")
    _write_stepped(models[0], models[1])
    num_bytes = sum(file.stat().st_size for file in models[0].glob("*.safetensors"))
    taken: dict[str, list[PublishReport]] = {way: [] for way in WAYS}
    copied: list[float] = []
    server, url = _engine(models[0], folder, "large", "--dtype", "bfloat16")
    with running([server], ready_timeout_s=START_LIMIT_S), _Publisher(folder / "store", [url]) as publisher:
        turns = itertools.cycle(reversed(models))  # every publish changes the weights
        for number in range(rounds + 1):
            copied.append(_memcpy_rate(num_bytes))
            for way in WAYS:
                report = publisher.publish(next(turns), way)
                if number:  # the first of each way also pays for imports
                    taken[way].append(report)
    rate = statistics.median(copied)
    figures: dict[str, float] = {"model_mb": round(num_bytes / 1e6, 1), "memcpy_gb_s": round(rate, 2)}
    floors = {measure: measure(num_bytes, BUCKET_MB << 20) for measure in set(FLOORS.values())}
    for way, reports in taken.items():
        figures |= figures_of(way, reports, num_bytes)
        achieved = num_bytes / statistics.median(report.seconds for report in reports) / 1e9
        figures[f"{way}_over_memcpy"] = round(achieved / rate, 3)
        if way in FLOORS:
            floor = floors[FLOORS[way]]
            figures[f"{way}_floor_over_memcpy"] = round(floor / rate, 3)
            figures[f"{way}_over_floor"] = round(achieved / floor, 3)
    return figures


def _write_stepped(model: Path, stepped: Path) -> None:
    """The model after the first step of AdamW, which moves each weight by the learning rate, up or down."""
    shutil.copytree(model, stepped)
    draw = torch.Generator().manual_seed(0)
    for file in stepped.glob("*.safetensors"):
        tensors = {
            name: (held.float() + LR * torch.randn(held.shape, generator=draw).sign()).to(held.dtype)
            for name, held in load_file(file).items()
        }
        save_file(tensors, file, metadata={"format": "pt"})


def _many_engines(folder: Path, engines: int, rounds: int) -> dict[str, float]:
    model = folder / "tiny"
    write_random_model(model, seed=1)
    started = [_engine(model, folder, f"tiny-{number}") for number in range(engines)]
    urls = [url for _, url in started]
    servers = [server for server, _ in started]
    with running(servers, ready_timeout_s=START_LIMIT_S), _Publisher(folder / "store-of-many", urls) as publisher:
        reports = {way: publisher.publish(model, way) for way in MANY_WAYS}
        of_ranks = by_ranks(model, folder / "store-of-ranks", urls[:2], rounds)
    num_bytes = sum(file.stat().st_size for file in model.glob("*.safetensors"))
    figures = of_ranks | {"engines": engines}
    for way, report in reports.items():
        figures |= {
            f"engines_serving_by_{way}": len(report.serving),
            f"engines_{way}_ms": round(report.seconds * 1000, 1),
            f"engines_{way}_sent_over_model": round(report.bytes_sent / num_bytes, 2),
        }
    return figures


class _Publisher:
    """Publishes as a round does, to engines without a proxy; to be used as a context."""

    def __init__(self, root: Path, urls: list[str]) -> None:
        self._urls = urls
        self._catalog = Catalog.open(StoreConfig(root=root))
        self._root = root
        self._version = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._catalog.close()

    def publish(self, folder: Path, way: str) -> PublishReport:
        """Publish the folder's weights as the next version. Raises RuntimeError where an engine does not serve it."""
        self._version += 1
        version = version_path(self._root, self._version)
        version.parent.mkdir(exist_ok=True)
        version.symlink_to(folder)  # differences are to the served version's folder in the store
        settings = PublishConfig(**WAYS[way], bucket_mb=BUCKET_MB)
        config = TrainerConfig(engine_urls=self._urls, publish=settings)
        report = publish(version, self._version, config, None, self._catalog)
        if report.failed:
            raise RuntimeError(f"not every engine serves the version: {report.failed}")
        return report


def _engine(model: Path, folder: Path, name: str, *flags: str) -> tuple[Server, str]:
    port = free_port()
    arguments = ["engine", "--model", str(model), "--port", str(port), *flags]
    server = module_server(name, COMMAND, arguments, port=port, folder=folder)
    return server, f"http://127.0.0.1:{port}"


def _memcpy_rate(num_bytes: int) -> float:
    """10^9 bytes per second of copying so many bytes, bucket by bucket, into memory that was touched before."""
    source = torch.ones(BUCKET_MB << 20, dtype=torch.uint8)
    target = torch.zeros_like(source)
    times = max(1, num_bytes // len(source))
    began_s = time.perf_counter()
    for _ in range(times):
        target.copy_(source)
    return times * len(source) / (time.perf_counter() - began_s) / 1e9
