"""The engines of `weir bench publish --faults`: processes that can be killed, started again and made to hang."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import Self

import httpx

from weir.proxy.engines.router_routes import workers_of, workers_url
from weir.scripts.bench.servers import COMMAND, module_server
from weir.scripts.launch.servers import Server, free_port, start, stop, wait_ready

START_LIMIT_S = 300.0


class Engines:
    """Embedded engines with the same first weights, as version 0; to be used as a context."""

    def __init__(self, model: Path, folder: Path, number: int) -> None:
        self.urls: list[str] = []
        self.router_url = ""  # known once a router was started
        self._servers: dict[str, Server] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for _ in range(number):
            port = free_port()
            flags = ["engine", "--model", str(model), "--port", str(port), "--weight-version", "0"]
            environment = {"OMP_NUM_THREADS": "1"}
            server = module_server(f"engine-{port}", COMMAND, flags, port=port, folder=folder, environment=environment)
            self.urls.append(f"http://127.0.0.1:{port}")
            self._servers[self.urls[-1]] = server

    def __enter__(self) -> Self:
        try:
            for url, server in self._servers.items():
                self._processes[url] = start(server)
            servers, processes = list(self._servers.values()), list(self._processes.values())
            wait_ready(servers, processes, timeout_s=START_LIMIT_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            stop(process)

    def kill_and_restart(self, url: str) -> None:
        """SIGKILL; returns once its successor, with the first weights, answers."""
        os.killpg(self._processes[url].pid, signal.SIGKILL)
        self._processes[url].wait()
        self._processes[url] = start(self._servers[url])
        wait_ready([self._servers[url]], [self._processes[url]], timeout_s=START_LIMIT_S)

    async def hang(self, url: str, seconds: float) -> None:
        """The engine's process stands still for so long."""
        os.killpg(self._processes[url].pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.killpg(self._processes[url].pid, signal.SIGCONT)

    async def versions_in_rotation(self) -> dict[str, str]:
        """The version that each engine of the router's rotation reports, where it answers."""
        async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
            listed = workers_of((await http.get(workers_url(self.router_url))).json()) or []
            inside = {worker.url for worker in listed}
            found = {}
            for url in inside & set(self.urls):
                with contextlib.suppress(httpx.HTTPError):
                    found[url] = str((await http.get(f"{url}/model_info")).json()["weight_version"])
        return found
