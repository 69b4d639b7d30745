"""The world of `weir bench phases`: rotation and weights of engines, conversations as groups, rounds that take time.

Invariant: what is measured, the handing over of calls and the loading of weights, is the code of `weir train`; only a
round's training is a pause, after which a version folder with nothing to load appears.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from weir.cluster.live.host import Host
from weir.cluster.live.world import GroupCalls, Phase, RoundEnd
from weir.scripts.bench.phases.agents import Crowd
from weir.scripts.live.engines import Engines
from weir.store.config import StoreConfig
from weir.trainer.versions.version_folder import set_current, version_path, write_version

TRAIN_S = 0.5


class BenchWorld:
    """Members by name, and what happened to them."""

    def __init__(self, engines: Engines, urls: Mapping[str, str], store: StoreConfig, crowd: Crowd) -> None:
        self.host: Host
        self.switches_s: list[float] = []
        self.loads_s: list[float] = []
        self.failures: list[str] = []
        self.phases: Counter[Phase] = Counter()
        self.trained: Counter[str] = Counter()  # how often a round took each group
        self._engines, self._urls, self._store, self._crowd = engines, urls, store, crowd
        self._groups = 0
        self._running: set[asyncio.Task[None]] = set()

    async def generate(self, member: str) -> None:
        """Bring a member into the rotation."""
        started = time.monotonic()
        await self._engines.enter(self._urls[member])
        self.switches_s.append(time.monotonic() - started)

    async def leave(self, member: str) -> None:
        """Take a member out of the rotation."""
        started = time.monotonic()
        await self._engines.leave(self._urls[member])
        self.switches_s.append(time.monotonic() - started)

    async def load(self, members: Sequence[str]) -> Mapping[str, str]:
        """Load the newest weights behind closed gates."""
        started = time.monotonic()
        failed = (await self._engines.load([self._urls[member] for member in members])).failed
        self.loads_s.append(time.monotonic() - started)
        return {member: failed[url] for member, url in self._urls.items() if url in failed}

    async def train(self, members: Sequence[str], groups: Sequence[str]) -> RoundEnd:
        """Take a while; then there is a new version."""
        await asyncio.sleep(TRAIN_S)
        version = self.host.weights + 1
        await asyncio.to_thread(self._write, version, list(groups))
        self.trained.update(groups)
        return RoundEnd(version=version, groups=groups)

    def abort(self, groups: Sequence[str]) -> None:
        """Nothing: no more groups are started than rounds take."""

    def allow(self, count: int) -> None:
        """Hold a conversation for each permit."""
        for _ in range(count):
            self._groups += 1
            task = asyncio.create_task(self._converse(f"g{self._groups}"))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    def began(self, member: str, phase: Phase, event: str, seconds: Mapping[str, float], note: str | None) -> None:
        """Count the phase."""
        self.phases[phase] += 1

    def say(self, text: str) -> None:
        """Keep what failed."""
        self.failures.append(text)

    async def watch(self, period_s: float) -> None:
        """Ask engines of the rotation whether they have work, until cancelled."""
        while True:
            await asyncio.sleep(period_s)
            for name in list(self.host.book.state.rotation):
                self.host.observe(name, busy=await self._engines.is_busy(self._urls[name]))

    @property
    def num_lost(self) -> int:
        """Groups that were held and neither trained on nor are ready; known once `drain` has returned."""
        return self._groups - len(self.trained) - self.host.book.state.num_ready

    async def drain(self) -> None:
        """Return once all conversations have ended."""
        await asyncio.gather(*self._running)

    async def _converse(self, group: str) -> None:
        self.host.group_started(group)
        await self._crowd.conversation()
        self.host.group_ended(group, complete=True)
        self.host.group_ready(group, GroupCalls())

    def _write(self, version: int, groups: list[str]) -> None:
        root = self._store.folder
        write_version(
            version_path(root, version),
            _write_nothing,
            version=version,
            parent=version - 1,
            round_id=version,
            config_hash="",
            seed=0,
            groups=groups,
        )
        set_current(root, version)


def _write_nothing(folder: Path) -> None:
    (folder / "config.json").write_text("{}")
