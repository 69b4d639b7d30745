"""One attempt to bring a version to some engines in process groups: what they are asked, and how it ends."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Coroutine, Sequence
from typing import Any

import httpx
import torch

from weir.engine.transfer.bucket import FORMAT
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.devices.weight_groups import forget_groups, note_groups, noted_groups
from weir.trainer.http_json import CONTROL_TIMEOUT_S, Refused, Unreachable, done, post
from weir.trainer.publishing.members import Member

LEAVE_S = 5.0  # for members of an attempt that failed: one that hangs was waited for already
GROUPS = "weir-"  # the names of groups begin with


class Attempt:
    """Some engines, of which each joins groups and receives from their rank 0."""

    def __init__(
        self, http: httpx.AsyncClient, members: Sequence[Member], version: int, timeout_s: float, catalog: Catalog
    ) -> None:
        self.members = members
        self.version = version
        self.timeout_s = timeout_s
        self.name = f"{GROUPS}{version}-{uuid.uuid4().hex[:8]}"
        self.world_size = 1 + sum(member.num_ranks for member in members)
        self.sent_bytes = 0  # over the sockets of the groups, known at their end
        self.errors: dict[str, Refused] = {}  # of members, in the order in which they came
        self._http = http
        self._catalog = catalog

    def backend(self) -> str:
        """NCCL between GPUs, gloo between CPUs. Raises `Refused` where an engine's GPU would need one here."""
        on_gpu = [member.url for member in self.members if member.device == "cuda" and not member.stages]
        if on_gpu and not torch.cuda.is_available():
            raise Refused(f"{on_gpu[0]} receives on its GPU, and this process has none; set publish.way to disk")
        return "nccl" if on_gpu else "gloo"

    def is_relayed(self, backend: str) -> bool:
        """Whether all members can pass on what they get."""
        return backend == "gloo" and all(member.relays for member in self.members)

    async def note(self, groups: Sequence[str]) -> None:
        """Members are about to be asked to join these groups: should this process be killed, the next one knows."""
        if urls := _unnamed(self.members):
            await asyncio.to_thread(note_groups, self._catalog, urls, groups)

    def joins(self, group: str, address: str, port: int, backend: str) -> list[Coroutine[Any, Any, None]]:
        """Requests to join a group behind its rank 0, whose store is at this address."""
        settings: dict[str, Any] = {
            "master_address": address,
            "master_port": port,
            "world_size": self.world_size,
            "group_name": group,
            "backend": backend,
        }
        settings |= {"relayed": True} if self.is_relayed(backend) else {}
        asked, rank = [], 1
        for member in self.members:
            asked.append(self._tell(member.url, "init_weights_update_group", settings | {"rank_offset": rank}))
            rank += member.num_ranks
        return asked

    def receives(
        self, group: str, tensors: Sequence[tuple[str, torch.dtype, Sequence[int]]], last: bool
    ) -> list[Coroutine[Any, Any, None]]:
        """Requests to receive a bucket of tensors, of these names, types and shapes, that a group's rank 0 sends."""
        body = {
            "names": [name for name, _, _ in tensors],
            "dtypes": [str(dtype).removeprefix("torch.") for _, dtype, _ in tensors],
            "shapes": [list(shape) for _, _, shape in tensors],
            "group_name": group,
        } | settings_of(self.version, last)
        return [self._tell(member.url, "update_weights_from_distributed", body) for member in self.members]

    async def _tell(self, url: str, route: str, body: dict[str, Any]) -> None:
        try:
            await done(self._http, f"{url}/{route}", body, timeout_s=self.timeout_s)
        except Refused as error:
            self.errors.setdefault(url, error)
            raise

    async def leave(self, groups: Sequence[str], *, has_failed: bool) -> dict[str, str]:
        """End groups in all members; returns those that do not answer, by URL."""
        gone: dict[str, str] = {}
        limit_s = min(LEAVE_S if has_failed else CONTROL_TIMEOUT_S, self.timeout_s)

        async def end(url: str, group: str) -> None:
            body = {"group_name": group}
            try:
                await post(self._http, f"{url}/destroy_weights_update_group", body, timeout_s=limit_s)
            except Unreachable as error:
                gone[url] = str(self.errors.get(url, error))
            except Refused:  # it had not joined, or has left by itself
                return

        await asyncio.gather(*(end(member.url, group) for member in self.members for group in groups))
        await _forget(self._catalog, [member for member in self.members if member.url not in gone], groups)
        return gone

    def lost(self, gone: dict[str, str], why: str) -> dict[str, str]:
        """The members to go on without after a failure, by URL: those that are gone, else the first that failed."""
        if gone:
            return gone
        first = next(iter(self.errors.items()), None)
        return {first[0]: str(first[1])} if first is not None else {member.url: why for member in self.members}


async def leave_old(
    http: httpx.AsyncClient, members: Sequence[Member], timeout_s: float, catalog: Catalog
) -> dict[str, str]:
    """Have engines leave the groups of a publisher that was killed; returns those that do not answer, by URL.

    Publishes exclude each other: a group that is there before one has made its own has no other member.
    """
    gone: dict[str, str] = {}

    async def leave(url: str, group: str) -> None:
        try:
            await post(http, f"{url}/destroy_weights_update_group", {"group_name": group}, timeout_s=timeout_s)
        except Unreachable as error:
            gone[url] = f"it does not leave the group {group} of a publisher that was killed: {error}"
        except Refused:  # it has left by itself since
            return

    noted = await asyncio.to_thread(noted_groups, catalog) if _unnamed(members) else {}
    named = {member.url: noted.get(member.url, ()) if member.groups is None else member.groups for member in members}
    old = {url: [group for group in groups if group.startswith(GROUPS)] for url, groups in named.items()}
    await asyncio.gather(*(leave(url, group) for url, groups in old.items() for group in groups))
    left = [member for member in members if old[member.url] and member.url not in gone]
    await _forget(catalog, left, {group for member in left for group in old[member.url]})
    return gone


def _unnamed(members: Sequence[Member]) -> list[str]:
    """Those that do not say in which groups they are, as SGLang, by URL: the catalog has them."""
    return [member.url for member in members if member.groups is None]


async def _forget(catalog: Catalog, members: Sequence[Member], groups: Collection[str]) -> None:
    if urls := _unnamed(members):
        await asyncio.to_thread(forget_groups, catalog, urls, groups)


def settings_of(version: int, last: bool) -> dict[str, Any]:
    """What the last request of an update says of the whole."""
    return {
        "load_format": FORMAT,
        "flush_cache": last,
        "weight_version": str(version) if last else None,
    }
