"""Sends the adapter of a LoRA round alone; engines merge it into its base, which they have.

Invariant: an engine serves the merged weights only once they have the checksums of the version's folder (delivery.py),
so that it makes no difference to its weights by which way they came.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any

import httpx

from weir.trainer.errors import VersionError
from weir.trainer.http_json import done, for_each
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
