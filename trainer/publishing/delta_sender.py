"""Sends the exact difference between a version and the one that an engine serves: only what changed travels.

The difference that is stored beside the version is taken where it is to that one; else it is made from the two folders.
Invariant: an engine changes a copy of what it serves, and serves the copy only once it has the checksums of the
version's folder (delivery.py), so that it makes no difference to its weights by which way they came.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from weir.engine.transfer.block_delta import DeltaDamaged
from weir.trainer.errors import VersionError
from weir.trainer.http_json import Refused, done, for_each
from weir.trainer.publishing.members import Member
from weir.trainer.publishing.weight_source import WeightSource
from weir.trainer.versions.delta_file import SUFFIX, parts, write_delta
from weir.trainer.versions.version_folder import MANIFEST, read_manifest

_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}  # safetensors' names, torch's


async def send_deltas(
    http: httpx.AsyncClient, members: Sequence[Member], source: WeightSource, version: int, timeout_s: float
) -> dict[str, str]:
    """To each engine the difference to the version that it serves. Returns failures, by URL."""
    failed: dict[str, str] = {}
    summing = asyncio.ensure_future(asyncio.to_thread(source.checksums))  # no bucket is filled, where others sum up
    for served in sorted({member.version for member in members}):
        urls = [member.url for member in members if member.version == served]
        try:
            failed |= await _send(http, urls, source, served, version, timeout_s)
        except (Refused, VersionError, DeltaDamaged, OSError) as error:
            failed |= dict.fromkeys(urls, str(error))
    await summing
    return failed


async def _send(
    http: httpx.AsyncClient, urls: list[str], source: WeightSource, served: str, version: int, timeout_s: float
) -> dict[str, str]:
    failed: dict[str, str] = {}
    with TemporaryDirectory(prefix="weir-delta-") as aside:
        deltas = await asyncio.to_thread(lambda: list(_deltas(source.folder, served, Path(aside))))
        bodies = _bodies(deltas, source.bucket_bytes, served, version)
        while (body := await asyncio.to_thread(next, bodies, None)) is not None:

            async def to_one(url: str, body: dict[str, Any] = body) -> None:
                source.num_sent += len(body["blocks"])
                await done(http, f"{url}/update_weights_from_delta", body, timeout_s=timeout_s)

            failed |= await for_each([url for url in urls if url not in failed], to_one)
    return failed


def _deltas(folder: Path, served: str, aside: Path) -> Iterator[Path]:
    """The differences to the files of the served version, stored ones, or new ones in `aside`. Raises `Refused`."""
    if not served.isdecimal():
        raise Refused(f"it serves {served!r}, which is no version of the store")
    base = folder.parent / f"{int(served):08d}"
    manifest = read_manifest(folder) if (folder / MANIFEST).exists() else None
    for path in sorted(folder.glob("*.safetensors")):
        stored = path.with_name(path.name + SUFFIX)
        if manifest is not None and manifest.base == int(served) and stored.exists():
            yield stored
            continue
        if not (base / path.name).exists():
            raise Refused(f"it serves version {served}, and the store has no whole {path.name} of that one")
        made = aside / stored.name
        if not write_delta(base / path.name, path, made):
            raise Refused(f"it serves version {served}, whose {path.name} holds other tensors")
        yield made


def _bodies(deltas: list[Path], part_bytes: int, served: str, version: int) -> Iterator[dict[str, Any]]:
    """The requests for one engine; the last one names the version."""
    all_parts = chain.from_iterable(parts(delta, part_bytes) for delta in deltas)
    for part, following in pairwise(chain(all_parts, [None])):
        assert part is not None
        layout, blocks = part
        strange = next((name for name, tensor in layout.items() if tensor.dtype not in _DTYPES), None)
        if strange is not None:
            raise Refused(f"{strange} is of {layout[strange].dtype}, of which no difference is sent")
        yield {
            "base_version": served,
            "names": list(layout),
            "dtypes": [_DTYPES[tensor.dtype] for tensor in layout.values()],
            "shapes": [tensor.shape for tensor in layout.values()],
            "blocks": base64.b64encode(blocks).decode(),
            "flush_cache": following is None,
            "weight_version": str(version) if following is None else None,
        }
