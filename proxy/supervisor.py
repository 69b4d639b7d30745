"""`weir proxy`: one process, or several on one port under a small parent.

Invariants: the parent holds the port and accepts nothing; a worker that dies is started again, later each time that it
lives shortly; SIGTERM is passed on and all workers are waited for. When one cannot start at first, or none can later,
all end and the error is raised. Not here: serving (server.py), what a worker does at its start (worker.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from pathlib import Path

import msgspec
import uvloop

from weir.proxy.assembly import Served
from weir.proxy.config import ProxyConfig
from weir.proxy.errors import SetupError
from weir.proxy.http.sockets import bind, reserve
from weir.proxy.probe.upstream import certify
from weir.proxy.server import serve
from weir.proxy.worker import Word, order_of, prepare
from weir.store.config import StoreConfig

FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.25, 30.0
STEADY_S = 30.0  # after so long a life the next start is not put off any further
FAILED_STARTS = 5  # in a row, while no worker serves: none can
GRACE_S = 15.0  # for the log, after calls had their time

logger = logging.getLogger("weir.proxy.supervisor")


def run(
    config: ProxyConfig, store: StoreConfig, *, model_path: Path | None, model_name: str, upstream_url: str
) -> None:
    """Serve until SIGTERM or SIGINT; prints the base_url once calls are accepted. Raises SetupError or StoreError."""
    prepare(config)
    served = Served(
        config=config,
        store=store,
        model_path=model_path,
        model_name=model_name,
        upstream_url=upstream_url,
        certified=asyncio.run(certify(config, upstream_url, model_name, can_render=model_path is not None)),
    )
    if config.workers == 1:
        listener = bind(config.host, config.port)
        uvloop.run(serve(served, listener, lambda line: print(line, flush=True)))
        return
    with reserve(config.host, config.port) as port:
        asyncio.run(_Supervisor(served, port.getsockname()[1]).run())


class _Supervisor:
    """The parent of several workers."""

    def __init__(self, served: Served, port: int) -> None:
        self._config = served.config
        self._order = order_of(served, port)
        self._stopping = asyncio.Event()
        self._lives: set[asyncio.subprocess.Process] = set()
        self._num_ready = 0
        self._failed_starts = 0
        self._announced = False

    async def run(self) -> None:
        """Keep all workers running until asked to stop. Raises `SetupError` when none can start."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        keeping = [asyncio.create_task(self._keep(number)) for number in range(self._config.workers)]
        stopped = asyncio.create_task(self._stopping.wait())
        done, _ = await asyncio.wait([*keeping, stopped], return_when=asyncio.FIRST_COMPLETED)
        self._stopping.set()
        await self._stop_all()
        await asyncio.gather(*keeping, return_exceptions=True)
        for task in done:
            task.result()

    async def _keep(self, number: int) -> None:
        """Run one worker after the other."""
        backoff_s = FIRST_BACKOFF_S
        while True:
            started = time.monotonic()
            failure = await self._live(number)
            if self._stopping.is_set():
                return
            if failure is not None and self._is_hopeless():
                raise SetupError(failure)
            if time.monotonic() - started > STEADY_S:
                backoff_s = FIRST_BACKOFF_S
            logger.error(
                "worker %d ended%s; the next starts in %g s", number, f": {failure}" if failure else "", backoff_s
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), backoff_s)
                return
            backoff_s = min(2 * backoff_s, MAX_BACKOFF_S)

    def _is_hopeless(self) -> bool:
        return not self._announced or (self._failed_starts >= FAILED_STARTS and not self._num_ready)

    async def _live(self, number: int) -> str | None:
        """One worker from its start to its end; why it could not start, where it could not."""
        reading, writing = os.pipe()
        command = (sys.executable, "-m", "weir.proxy.worker", str(writing))
        worker = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, pass_fds=(writing,))
        os.close(writing)
        self._lives.add(worker)
        try:
            assert worker.stdin is not None
            worker.stdin.write(self._order)
            worker.stdin.close()
            word = await _word(reading)
            if word.ready is None:
                self._failed_starts += 1
                status = await worker.wait()
                return word.failed or f"worker {number} ended with status {status} before it served; its log says why"
            await self._served(worker, word.ready)
            return None
        finally:
            self._lives.discard(worker)

    async def _served(self, worker: asyncio.subprocess.Process, line: str) -> None:
        """Until a worker that serves ends."""
        self._failed_starts = 0
        self._num_ready += 1
        if self._num_ready == self._config.workers and not self._announced:
            self._announced = True
            print(f"{line}, {self._num_ready} workers", flush=True)
        try:
            await worker.wait()
        finally:
            self._num_ready -= 1

    async def _stop_all(self) -> None:
        """SIGTERM to all; SIGKILL to those that take longer than their limits allow."""
        limit_s = self._config.shutdown_notice_s + self._config.shutdown_limit_s + GRACE_S
        ends = {asyncio.create_task(worker.wait()): worker for worker in self._lives}
        for worker in ends.values():
            with contextlib.suppress(ProcessLookupError):
                worker.terminate()
        if ends:
            _, late = await asyncio.wait(ends, timeout=limit_s)
            for end in late:
                logger.error("the worker with pid %d did not end within %g s and is killed", ends[end].pid, limit_s)
                ends[end].kill()


async def _word(pipe: int) -> Word:
    """What a worker said of its start; nothing where it died before."""
    reader = asyncio.StreamReader()
    with os.fdopen(pipe, "rb", buffering=0) as file:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), file
        )
        line = await reader.readline()
        transport.close()
    return msgspec.json.decode(line, type=Word) if line else Word()
