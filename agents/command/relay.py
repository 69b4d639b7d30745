"""Passes the connections of one session to the proxy's address and to nowhere else.

At `bubblewrap` it listens at a Unix socket that the session's network namespace is given; below, at a port of the
loopback. It counts connections and those that the proxy did not accept, so that an outage is not taken for an agent
that failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from weir.kernel_eval.client import tls_context

INSIDE_PORT = 8700  # in a session's own network namespace, where nobody else listens
_CHUNK = 1 << 16


class Relay:
    """One session's way to the proxy; `async with` closes it."""

    def __init__(self, target_url: str, socket_path: Path | None) -> None:
        """`socket_path`: where the session's network namespace looks for it; None: at a port of the loopback."""
        self.connections = 0
        self.refused = 0
        self.port = 0
        self._target = httpx.URL(target_url)
        self._socket_path = socket_path
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        if self._socket_path is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            self.port = self._server.sockets[0].getsockname()[1]
        else:
            self._server = await asyncio.start_unix_server(self._serve, sock=_listener(self._socket_path))
            self.port = INSIDE_PORT
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self.connections += 1
        try:
            await self._pass_on(reader, writer)
        finally:
            self._open.discard(task)
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = self._target
        tls = tls_context() if target.scheme == "https" else None
        try:
            far_reader, far_writer = await asyncio.open_connection(
                target.host, target.port or _default_port(target), ssl=tls
            )
        except OSError:
            self.refused += 1
            return
        try:
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:
            far_writer.close()


def _listener(path: Path) -> socket.socket:
    """A Unix socket at a path of any length: through its folder's descriptor, as addresses have 108 bytes at most."""
    listener = socket.socket(socket.AF_UNIX)
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    except OSError:
        listener.close()
        raise
    finally:
        os.close(folder)
    path.chmod(0o666)  # the session's user is another one
    return listener


def _default_port(url: httpx.URL) -> int:
    return 443 if url.scheme == "https" else 80


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):  # closed already
        writer.write_eof()
