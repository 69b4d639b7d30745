"""What each engine can take part in, by what it says of itself, and the way that is chosen for it."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx
import psutil

from weir.engine.transfer.shared_memory import shared_memory_id
from weir.trainer.http_json import Refused, for_each, get
from weir.trainer.settings.publishing import Way


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An engine that weights are sent to."""

    url: str
    stages: bool  # it keeps what arrives beside what it serves, until the end of the update
    relays: bool  # it passes on what it gets in a group
    takes_deltas: bool  # it applies differences to what it serves
    takes_fp8: bool  # it loads weights in blocks of float8
    takes_adapters: bool  # it merges adapters of LoRA into their base
    serves_adapters: bool  # it is an SGLang that computes with adapters beside its base
    folder: str  # that it was started on, or has loaded since
    version: str  # that it serves
    dtype: str  # "float32", "bfloat16"; "auto" where only the engine knows
    device: str  # "cpu", "cuda"
    groups: tuple[str, ...] | None  # process groups that it says it is in; None where it does not say
    num_ranks: int  # of tensor parallelism
    gpus: tuple[int, ...]  # of the ranks, as SGLang numbers them
    one_replica: bool  # SGLang takes tensors only without data parallelism
    is_local: bool  # it runs on this machine
    shares_memory: bool  # it says that it can open the shared memory of this process

    def way(self, wanted: Way) -> Way:
        """The way for this engine; "auto" becomes one that it should be able to go, as does one that it cannot."""
        if self.unable(wanted) is not None:
            return self.way("auto")
        if wanted != "auto":
            return wanted
        if not self.one_replica or self.serves_adapters:
            return "disk"
        return "tensor" if self.is_local else "distributed"

    def unable(self, wanted: Way) -> str | None:
        """Why this engine cannot go a way that only some can; None where it can."""
        if wanted == "delta" and not self.takes_deltas:
            return "it takes no differences; `weir stage` beside it does"
        if wanted == "adapter" and not self.takes_adapters:
            return "it merges no adapters into a base; it gets the merged weights"
        if wanted in ("tensor", "ipc", "distributed") and self.serves_adapters:
            return "it was started with --enable-lora, and its layers take tensors by other names; it reads the folder"
        return None


async def ask_members(
    http: httpx.AsyncClient, urls: list[str], timeout_s: float, *, by_memory: bool = True
) -> tuple[list[Member], dict[str, str]]:
    """The engines that answer, and why the others did not, by URL. Unless `by_memory`, none shares memory."""
    members: dict[str, Member] = {}
    own_memory = shared_memory_id() if by_memory else None

    async def ask(url: str) -> None:
        info = await get(http, f"{url}/server_info", timeout_s=timeout_s)
        num_ranks = int(info.get("tp_size") or 1)
        first_gpu, gpu_step = int(info.get("base_gpu_id") or 0), int(info.get("gpu_id_step") or 1)
        members[url] = Member(
            url=url,
            stages=info.get("staged_weight_updates") is True,
            relays=info.get("relayed_weight_updates") is True,
            takes_deltas=info.get("delta_weight_updates") is True,
            takes_fp8=info.get("fp8_checkpoints") is True or info.get("quantization") == "fp8",
            takes_adapters=info.get("adapter_weight_updates") is True,
            serves_adapters=info.get("enable_lora") is True,
            folder=str(info.get("model_path")),
            version=str(info.get("weight_version")),
            dtype=str(info.get("dtype")),
            device=str(info.get("device")),
            groups=None if info.get("weight_groups") is None else tuple(info["weight_groups"]),
            num_ranks=num_ranks,
            gpus=tuple(first_gpu + rank * gpu_step for rank in range(num_ranks)),
            one_replica=int(info.get("dp_size") or 1) == 1,
            is_local=await asyncio.to_thread(is_local, url),
            shares_memory=own_memory is not None and info.get("shared_memory") == own_memory,
        )

    failed = await for_each(urls, ask)
    return [members[url] for url in urls if url in members], failed


def is_local(url: str) -> bool:
    """Whether a server's address is one of this machine's. False where the name is not known."""
    own = {address.address for held in psutil.net_if_addrs().values() for address in held}
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(urlsplit(url).hostname, None)}
    except OSError:
        return False
    return all(address in own or ipaddress.ip_address(address).is_loopback for address in found)


def address_towards(members: list[Member]) -> str:
    """The address at which all members can reach this process. Raises `Refused` where there is no way to one."""
    remote = next((member for member in members if not member.is_local), None)
    if remote is None:
        return "127.0.0.1"
    parts = urlsplit(remote.url)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # sends nothing
            probe.connect((parts.hostname, parts.port or 80))
            return str(probe.getsockname()[0])
    except OSError as error:
        raise Refused(f"no address to reach {remote.url} from: {error}") from error
