"""The demo's agents: endless groups in the background while rounds train, and one attempt at each held-out task.

Invariant: agents are at most `ahead` groups ahead of the trainer, so that what it trains on is never much older
than the weights; each round that took groups gives as many back.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from weir.agents.config import AgentsConfig
from weir.agents.control import ControlClient
from weir.agents.heldout import Measured, measure
from weir.agents.kernel_agent import solve
from weir.agents.runner import RunSummary, run_groups
from weir.kernel_eval.client import KernelTask
from weir.scripts.errors import CommandError


class BackgroundAgents:
    """Runs groups of sessions in a thread of its own from entry to exit."""

    def __init__(self, tasks: Sequence[KernelTask], config: AgentsConfig, *, ahead: int, seed: int) -> None:
        self._tasks, self._config, self._seed = tasks, config, seed
        self._ahead = ahead
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._permits = asyncio.Semaphore(ahead)
        self._thread = threading.Thread(target=self._run, name="agents")
        self._failure: BaseException | None = None
        self.summary = RunSummary()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(RuntimeError):  # the loop has ended by itself
            self._loop.call_soon_threadsafe(self._finish)
        self._thread.join()

    def give_back(self, num_groups: int) -> None:
        """Let the agents start as many groups again. Raises `CommandError` when they have ended with an error."""
        if self._failure is not None:
            raise CommandError(f"the agents ended: {self._failure}") from self._failure
        for _ in range(num_groups):
            self._loop.call_soon_threadsafe(self._permits.release)

    def _finish(self) -> None:
        self._stop.set()
        self._permits.release()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._run_groups())
        except Exception as error:
            self._failure = error
        finally:
            self._loop.close()

    async def _run_groups(self) -> None:
        async with control_client(self._config) as control:
            groups = run_groups(
                self._tasks, solve, control, self._config, seed=self._seed, stop=self._stop, permits=self._permits
            )
            async for group in groups:
                self.summary.add(group)


def heldout_correctness(tasks: Sequence[KernelTask], config: AgentsConfig, samples: int) -> float:
    """The share of right answers over `samples` first attempts at every task, sampled at temperature 1."""

    async def attempts() -> Measured:
        async with control_client(config) as control:
            return await measure(tasks, control, config.model_copy(update={"samples": samples}))

    return asyncio.run(attempts()).correct


def control_client(config: AgentsConfig) -> ControlClient:
    """The client of the control routes that the settings name."""
    assert config.proxy_url is not None and config.control_key is not None
    return ControlClient(config.proxy_url, config.control_key.get_secret_value(), config)
