"""Contained commands over a session's folder, and a real HTTP server behind their relay."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from weir.agents.command.contained import SOCKET, Command, run_contained
from weir.agents.command.enclosure import HOME, WORK, Enclosure, choose_enclosure, inside_user
from weir.agents.command.environment import base_environment
from weir.agents.command.limits import CommandEnd, CommandLimits
from weir.agents.command.relay import Relay
from weir.agents.command.session_folder import SessionFolder
from weir.agents.command.watch import Watch
from weir.agents.config import AgentsConfig
from weir.kernel_eval.sandbox import containment
from weir.kernel_eval.sandbox.levels import SandboxLevel

UID = 310_000


@dataclass(kw_only=True)
class Ran:
    """What a contained script did."""

    end: CommandEnd
    output: str
    folder: SessionFolder
    relay: Relay
    work: str  # as the script saw it


class Contained:
    """Runs Python scripts as an agent's command at one level."""

    def __init__(self, root: Path, level: SandboxLevel) -> None:
        self._config = AgentsConfig(command_sandbox=level)
        self.root = root
        self.enclosure: Enclosure = choose_enclosure(self._config, [sys.executable])
        self._number = 0

    def __call__(
        self, script: str, *arguments: object, url: str = "http://127.0.0.1:9", seconds: float = 60, **limits: int
    ) -> Ran:
        return asyncio.run(self.run(script, *arguments, url=url, seconds=seconds, **limits))

    async def run(
        self, script: str, *arguments: object, url: str = "http://127.0.0.1:9", seconds: float = 60, **limits: int
    ) -> Ran:
        self._number += 1
        uid = UID + self._number if self.enclosure.own_user else None
        folder = SessionFolder(self.root / f"session-{self._number}", uid)
        work, home = (WORK, HOME) if self.enclosure.has_mounts else (str(folder.work), str(folder.home))
        folder.make("a prompt", inside_uid=inside_user(uid), inside_home=home)
        folder.give_away()
        config = self._config.model_copy(update={f"command_{name}": value for name, value in limits.items()})
        output = folder.path / "output.txt"
        async with Relay(url, folder.run / SOCKET if self.enclosure.has_mounts else None) as relay:
            environment = base_environment(home, home) | {"URL": f"http://127.0.0.1:{relay.port}"}
            command = Command(argv=[sys.executable, "-c", script, *map(str, arguments)], environment=environment)
            wanted = CommandLimits.of(config, seconds)
            end = await run_contained(command, folder, self.enclosure, wanted, Watch(), output, relay)
        return Ran(end=end, output=output.read_text(errors="replace"), folder=folder, relay=relay, work=work)


@pytest.fixture(params=list(SandboxLevel), ids=str)
def contained(request: pytest.FixtureRequest, tmp_path: Path) -> Contained:
    """Each level that works here."""
    if not containment.works(request.param):
        pytest.skip(f"the level {request.param} does not work on this machine")
    return Contained(tmp_path / "sessions", request.param)


@pytest.fixture
def boxed(tmp_path: Path) -> Contained:
    """The level `bubblewrap`."""
    if not containment.works(SandboxLevel.BUBBLEWRAP):
        pytest.skip("bubblewrap does not work on this machine")
    return Contained(tmp_path / "sessions", SandboxLevel.BUBBLEWRAP)


@pytest.fixture
def http_server() -> Callable[[], Any]:
    """`async with http_server() as (url, seen)`: a server that answers every GET with "here" and keeps the paths."""

    @contextlib.asynccontextmanager
    async def start() -> AsyncIterator[tuple[str, list[str]]]:
        seen: list[str] = []

        async def answer(request: web.Request) -> web.Response:
            seen.append(request.path)
            return web.Response(text="here")

        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}", seen
        finally:
            await runner.cleanup()

    return start
