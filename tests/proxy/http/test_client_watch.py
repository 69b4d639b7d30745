"""The watch over a client that sends its next request before it has the answer to the last."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from weir.proxy.http.client_watch import while_client_stays
from weir.proxy.http.exchange import Exchange
from weir.proxy.server import uvicorn_server


class Pipelined:
    """Answers the first request and works on after it; the second waits for its client to leave."""

    def __init__(self) -> None:
        self.second_began, self.first_ended, self.second_left = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        exchange = Exchange(scope, receive, send)
        await exchange.body(1000, 30.0)
        if exchange.path == "/first":
            await while_client_stays(exchange, asyncio.create_task(self._first(exchange)))
            self.first_ended.set()
            return
        try:
            await while_client_stays(exchange, asyncio.create_task(self._second()))
        except asyncio.CancelledError:
            self.second_left.set()

    async def _first(self, exchange: Exchange) -> None:
        await exchange.answer(200, b"{}")
        await self.second_began.wait()

    async def _second(self) -> None:
        self.second_began.set()  # its watch began before
        await asyncio.Event().wait()


def test_the_end_of_an_answer_leaves_the_watch_of_the_next_request() -> None:
    async def run() -> None:
        app: Any = Pipelined()
        server = uvicorn_server(app, 1.0)
        listener = socket.create_server(("127.0.0.1", 0))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        _, writer = await asyncio.open_connection(*listener.getsockname())
        async with asyncio.timeout(60):  # what is not noticed would never end
            writer.write(b"".join(b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n" % path for path in (b"first", b"second")))
            await app.first_ended.wait()
            writer.close()
            await app.second_left.wait()
        server.should_exit = True
        await serving

    asyncio.run(run())
