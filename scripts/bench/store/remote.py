"""The figures of `weir bench store --s3`: what a question fetches from object storage, in bytes and time.

The server is moto's, on this machine: the time is without a network. One file holds the calls of each weight version,
as the largest files of a store do, which are not merged; the machine that asks has none of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

import httpx

from weir.scripts.bench.servers import module_server
from weir.scripts.bench.store.calls import make_calls
from weir.scripts.bench.store.queries import record
from weir.scripts.launch.servers import free_port, running
from weir.store.config import StoreConfig
from weir.store.errors import StoreError
from weir.store.maintenance.compact import compact
from weir.store.query.question import answer_rows, asking
from weir.store.query.views import open_views
from weir.store.shared.object_store import Objects

BUCKET = "weir-bench"
KEYS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_REGION": "us-east-1"}  # it takes any
OF_VERSION = "SELECT count(*), avg(num_output_tokens) FROM calls WHERE version_min >= $version"
OF_ALL = "SELECT count(*), avg(num_output_tokens) FROM calls WHERE version_min + 0 >= $version"  # nothing is left out


class MotoMissing(StoreError):
    """The benchmark's object storage is not installed."""


def measure_remote(root: Path, num_calls: int) -> dict[str, float]:
    """The figures, with a server of its own. Raises `MotoMissing`."""
    with _object_storage(root) as endpoint:
        return measure_questions(root, f"s3://{BUCKET}/store", endpoint, num_calls)


def measure_questions(folder: Path, root: str, endpoint: str, num_calls: int) -> dict[str, float]:
    """What a question about the newest version takes, first and again, and of one that needs all files."""
    given = {"root": root, "s3_endpoint": endpoint, "segment_grace_s": 0}
    given["catalog_url"] = f"sqlite:///{folder / 'catalog.sqlite'}"
    writer = StoreConfig.model_validate({**given, "local_folder": folder / "writer"})
    newest = _fill(writer, num_calls)
    figures = {"s3_stored_mb": sum(path.stat().st_size for path in writer.data_dir.glob("*.parquet")) / 1e6}
    for name, query in (("version", OF_VERSION), ("all", OF_ALL)):
        reader = StoreConfig.model_validate({**given, "local_folder": folder / f"reader-{name}"})
        for when in ("cold", "again"):
            figures |= {f"s3_{name}_{when}_{of}": value for of, value in _ask(reader, query, newest).items()}
    return figures


def _fill(config: StoreConfig, num_calls: int) -> int:
    """One file of each version; the newest version."""
    newest = 0
    for version, some in groupby(make_calls(num_calls), key=lambda call: int(call.spans[0].label)):
        if version == 0:
            continue  # eight files would be merged
        record(config, f"bench-{version}", list(some))
        compact(config)
        newest = version
    return newest


def _ask(config: StoreConfig, query: str, version: int) -> dict[str, float]:
    """A snapshot opened and a question asked."""
    with _fetched() as fetched:
        began = time.perf_counter()
        with open_views(config) as db, asking(db):
            ((count, _),) = answer_rows(db, query, {"version": version}).rows
        taken_ms = (time.perf_counter() - began) * 1e3
    assert count > 0
    return {"ms": taken_ms, "requests": float(len(fetched)), "kb": sum(fetched) / 1e3}


@contextmanager
def _fetched() -> Iterator[list[int]]:
    """The bytes of each range that is fetched meanwhile."""
    found: list[int] = []
    read_range = Objects.read_range

    def counted(objects: Objects, key: str, start: int, end: int) -> bytes:
        data = read_range(objects, key, start, end)
        found.append(len(data))
        return data

    Objects.read_range = counted  # type: ignore[method-assign, assignment]
    try:
        yield found
    finally:
        Objects.read_range = read_range  # type: ignore[method-assign]


@contextmanager
def _object_storage(folder: Path) -> Iterator[str]:
    if find_spec("moto") is None:
        raise MotoMissing("cannot measure object storage: moto is missing; ./scripts/install test")
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    server = module_server("moto", "moto.server", ["-p", str(port)], port=port, folder=folder, ready="/moto-api/")
    before = {name: os.environ.get(name) for name in KEYS}
    os.environ.update(KEYS)
    try:
        with running([server]):
            endpoint = f"http://127.0.0.1:{port}"
            httpx.put(f"{endpoint}/{BUCKET}", trust_env=False, timeout=60).raise_for_status()
            yield endpoint
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
