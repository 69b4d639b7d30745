"""What `weir train` asks of whoever runs its processes: this machine (`local.py`) or a Ray cluster (`ray_cluster.py`).

An engine is kept running by who runs it, and tells where it listens. The training slot is started again by the
controller, which must know of its end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


class ProcessFailed(Exception):
    """A process did not start, or has ended; the message says why. It may start at the next attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A module to run as a process: requests in, reports out, one JSON object a line; `Reports` writes them."""

    module: str
    arguments: Sequence[str]
    log_path: Path


class Worker(Protocol):
    """A process that answers requests by reports."""

    def send(self, request: Any) -> None:
        """Send a request; to a process that has ended nothing is sent, and `reports` ends."""

    def reports(self) -> AsyncIterator[Any]:
        """What it reports, until it ends; a second call continues after the first."""

    def bind(self, cores: Sequence[int]) -> None:
        """Bind all its threads and processes to cores of its machine; none: to all that it may use."""

    async def close(self) -> str:
        """Wait for its end, which the end of its input asks for; returns how it ended, in words."""

    def kill(self) -> None:
        """Kill it now. May be called twice."""

    async def is_at(self, members: Sequence[str]) -> bool:
        """Whether it runs where training on these members is to run."""


class Engine(Protocol):
    """The engine of a member; it is started again when it ends, at another address."""

    async def url(self) -> str | None:
        """Where it listens, or will once it has loaded; None while it is not placed.

        Raises `ProcessFailed`, once for each engine that has ended.
        """

    def kill(self) -> None:
        """Kill it, even if it is frozen: it is started again. Nothing where it does not run."""

    async def close(self) -> None:
        """End it."""


class Processes(Protocol):
    """Runs processes."""

    def open(self) -> None:
        """Reach what runs them; blocks. Raises `CommandError`."""

    async def start(self, order: Order, members: Sequence[str]) -> Worker:
        """Start a process where training on these members is to run. Raises `ProcessFailed`."""

    def engine(self, member: str) -> Engine:
        """The engine of a member, which `Engine.url` starts. Raises `ProcessFailed` where there is no room for it."""

    async def close(self) -> None:
        """Leave what runs them, once all processes are closed. May be called twice."""
