"""`weir proxy`: one process, or several on one port under a small parent.

Invariants: the parent holds the port and accepts no connection; a worker that dies is restarted, with exponential
backoff while it dies soon after its start; SIGTERM is forwarded and all workers are waited for. When one worker cannot
start at first, or none can later, all end and the error is raised.
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
from weir.proxy.worker import StartupMessage, order_of, prepare
from weir.store.config import StoreConfig

FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.25, 30.0
STEADY_S = 30.0  # a worker that lived this long resets the backoff
FAILED_STARTS = 5  # in a row, while no worker serves: the proxy gives up
GRACE_S = 15.0  # for draining the log, after the limit on calls in flight

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
    """Starts, restarts and stops the workers of one proxy."""

    def __init__(self, served: Served, port: int) -> None:
        self._config = served.config
        self._order = order_of(served, port)
        self._stopping = asyncio.Event()
        self._workers: set[asyncio.subprocess.Process] = set()
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
        """Run worker `number`, and restart it whenever it ends. Raises `SetupError` when no worker can start."""
        backoff_s = FIRST_BACKOFF_S
        while True:
            started = time.monotonic()
            failure = await self._run_worker(number)
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

    async def _run_worker(self, number: int) -> str | None:
        """Run one worker from its start to its end. Returns why it failed to start, None if it served."""
        reading, writing = os.pipe()
        command = (sys.executable, "-m", "weir.proxy.worker", str(writing))
        worker = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, pass_fds=(writing,))
        os.close(writing)
        self._workers.add(worker)
        try:
            assert worker.stdin is not None
            worker.stdin.write(self._order)
            worker.stdin.close()
            message = await _startup_message(reading)
            if message.ready is None:
                self._failed_starts += 1
                status = await worker.wait()
                return (
                    message.failed or f"worker {number} ended with status {status} before it served; its log says why"
                )
            await self._served(worker, message.ready)
            return None
        finally:
            self._workers.discard(worker)

    async def _served(self, worker: asyncio.subprocess.Process, line: str) -> None:
        """Return when a worker that serves has ended; announces the proxy once all serve."""
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
        """Send SIGTERM to all workers, and SIGKILL to those that take longer than their limits allow."""
        limit_s = self._config.shutdown_notice_s + self._config.shutdown_limit_s + GRACE_S
        ends = {asyncio.create_task(worker.wait()): worker for worker in self._workers}
        for worker in ends.values():
            with contextlib.suppress(ProcessLookupError):
                worker.terminate()
        if ends:
            _, late = await asyncio.wait(ends, timeout=limit_s)
            for end in late:
                logger.error("the worker with pid %d did not end within %g s and is killed", ends[end].pid, limit_s)
                ends[end].kill()


async def _startup_message(pipe: int) -> StartupMessage:
    """The report of a worker's start; empty if it died before it sent one."""
    reader = asyncio.StreamReader()
    with os.fdopen(pipe, "rb", buffering=0) as file:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), file
        )
        line = await reader.readline()
        transport.close()
    return msgspec.json.decode(line, type=StartupMessage) if line else StartupMessage()
