"""Sends the adapter of a LoRA round alone, to engines that have its base: they merge it, or compute with it beside.

Invariants: an engine that merges serves the merged weights only once they have the checksums of the version's folder
(delivery.py), so that it makes no difference to its weights by which way they came. One that serves the adapter beside
its base (SGLang) has that base's files, and reports "base" while no adapter is loaded: a version's number says that the
adapter of that version is the one that is loaded.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import httpx

from weir.engine.transfer.adapter import base_files
from weir.store.version_forms import ServedAdapter
from weir.trainer.errors import VersionError
from weir.trainer.http_json import done, for_each, get
from weir.trainer.model.adapter_file import read_published
from weir.trainer.publishing.members import Member
from weir.trainer.publishing.weight_source import WeightSource


async def send_adapters(
    http: httpx.AsyncClient, members: Sequence[Member], source: WeightSource, version: int, timeout_s: float
) -> dict[str, str]:
    """To each engine the version's adapter, in parts. Returns failures, by URL."""
    urls = [member.url for member in members]
    try:
        adapter = await asyncio.to_thread(read_published, source.folder)
    except VersionError as error:
        return dict.fromkeys(urls, str(error))
    failed: dict[str, str] = {}
    settings = {
        "base_path": adapter.base,
        "base_files": adapter.base_files,
        "scaling": adapter.shape.scaling,
        "dtype": str(source.buckets[0][0].dtype).removeprefix("torch."),
    }
    for part, following in pairwise(chain(adapter.parts(source.bucket_bytes), [None])):
        assert part is not None
        last = following is None
        body: dict[str, Any] = settings | {
            "adapter": base64.b64encode(part).decode(),
            "last": last,
            "flush_cache": last,
            "weight_version": str(version) if last else None,
        }

        async def to_one(url: str, body: dict[str, Any] = body) -> None:
            source.num_sent += len(body["adapter"])
            await done(http, f"{url}/update_weights_from_adapter", body, timeout_s=timeout_s)

        failed |= await for_each([url for url in urls if url not in failed], to_one)
    return failed


async def unfit_to_serve(
    http: httpx.AsyncClient, member: Member, adapter: ServedAdapter, stored: Path, timeout_s: float
) -> str | None:
    """Why an engine cannot serve an adapter beside its base; None where it can. `stored` holds the versions' folders.

    Its base is that of its folder unless tensors have been sent to it since, after which it reports a version that is
    another one than the base, and serves no adapter.
    """
    remedy = f"restart it on {adapter.base} with --enable-lora"
    if not member.serves_adapters or not member.one_replica:
        return f"it serves no adapters that are loaded while it runs: {remedy}, and without data parallelism"
    if await asyncio.to_thread(base_files, Path(member.folder)) != adapter.base_files:
        return f"its weights in {member.folder}, as this machine sees it, are not the base of the adapter: {remedy}"
    version = str((await get(http, f"{member.url}/model_info", timeout_s=timeout_s)).get("weight_version"))
    if not version.isdecimal() or adapter.is_among(await get(http, f"{member.url}/v1/models", timeout_s=timeout_s)):
        return None
    told = stored / f"{int(version):08d}"
    if not told.is_dir() or await asyncio.to_thread(base_files, told) == adapter.base_files:
        return None
    return (
        f"it serves version {version} and no adapter {adapter.name!r}, so that its base may have been changed: {remedy}"
    )


async def load_adapter(
    http: httpx.AsyncClient, url: str, folder: Path, adapter: ServedAdapter, version: int, timeout_s: float
) -> None:
    """Have an engine whose calls have been aborted serve the adapter in a folder, as a version. Raises `Refused`."""
    is_loaded = adapter.is_among(await get(http, f"{url}/v1/models", timeout_s=timeout_s))
    for route, body in adapter.requests(folder, str(version), is_loaded=is_loaded):
        await done(http, f"{url}{route}", body, timeout_s=timeout_s)
