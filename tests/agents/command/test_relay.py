"""The relay between a session's network namespace and the proxy: its socket, at any path."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from weir.agents.command.relay import Relay


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.readexactly(4))
    await writer.drain()
    writer.close()


def test_the_socket_may_lie_deeper_than_a_socket_address_is_long(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 30)
    folder.mkdir()

    async def ask() -> bytes:
        proxy = await asyncio.start_server(_echo, "127.0.0.1", 0)
        port = proxy.sockets[0].getsockname()[1]
        near = os.open(folder, os.O_PATH)
        try:
            async with proxy, Relay(f"http://127.0.0.1:{port}", folder / "proxy.sock"):
                reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{near}/proxy.sock")
                writer.write(b"ping")
                answer = await reader.read()
                writer.close()
                return answer
        finally:
            os.close(near)

    assert asyncio.run(ask()) == b"ping"
