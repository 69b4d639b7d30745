"""What training ranks and the process that publishes tell each other where ranks send a version to engines."""

from __future__ import annotations

from dataclasses import dataclass

import torch

Listed = tuple[str, torch.dtype, tuple[int, ...]]  # name, type and shape of a tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedBucket:
    """Whole tensors that one rank broadcasts at once."""

    owner: int
    tensors: tuple[Listed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Where owners meet the engines: group `name`-N is that of rank N."""

    name: str
    address: str
    port: int
    world_size: int
    backend: str
    relayed: bool
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What became of a sending: bytes over the sockets of the owners' groups, and what went wrong on some rank."""

    num_bytes: int
    failure: str | None
