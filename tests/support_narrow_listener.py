"""A listener in front of a server, slow to accept connections and with a short backlog: the kernel drops the rest."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

BACKLOG = 4


class NarrowListener:
    """Passes bytes on, and accepts a connection every `every_s` seconds."""

    def __init__(self, target_url: str, every_s: float) -> None:
        self._target = urlsplit(target_url)
        self._every_s = every_s
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen(BACKLOG)
        self._socket.setblocking(False)
        self._connections: set[asyncio.Task[None]] = set()
        self.stopped = asyncio.Event()
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    async def serve(self) -> None:
        """Accept until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await asyncio.sleep(self._every_s)
                client, _ = await loop.sock_accept(self._socket)
                task = asyncio.create_task(self._pass_on(client))
                self._connections.add(task)
                task.add_done_callback(self._connections.discard)
        finally:
            for task in self._connections:
                task.cancel()
            self._socket.close()
            self.stopped.set()

    async def _pass_on(self, client: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=client)
        there, back = await asyncio.open_connection(self._target.hostname, self._target.port)
        ways = {asyncio.create_task(_copy(reader, back)), asyncio.create_task(_copy(there, writer))}
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        writer.close()
        back.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


@contextlib.contextmanager
def narrow_listener(target_url: str, every_s: float) -> Iterator[str]:
    """Serve on a thread until the block ends; gives the URL."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def make() -> NarrowListener:
        return NarrowListener(target_url, every_s)

    listener = asyncio.run_coroutine_threadsafe(make(), loop).result(120)
    serving = asyncio.run_coroutine_threadsafe(listener.serve(), loop)
    try:
        yield listener.url
    finally:
        serving.cancel()
        asyncio.run_coroutine_threadsafe(listener.stopped.wait(), loop).result(120)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(120)
        loop.close()
