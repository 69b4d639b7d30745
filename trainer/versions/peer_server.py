"""Serves the files of versions that a helper holds to other helpers (peers.py).

GET /versions/<number>/<sha256 of the manifest>/<name> answers 200 with a file; 404 where it may still come, with the
bytes received so far; 410 where the version is here without it; 409 where only a newer version is.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from typing import BinaryIO
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from weir.trainer.errors import TrainerUsageError
from weir.trainer.versions.peers import RECEIVED, Held

_PART_BYTES = 1 << 20


class PeerServer:
    """An HTTP server on the host and port of `url`, in a thread of its own.

    Raises `TrainerUsageError` where it cannot listen there.
    """

    def __init__(self, url: str, held: Held) -> None:
        parts = urlsplit(url)
        try:
            host, port = parts.hostname, parts.port
            if parts.scheme != "http" or host is None or port is None:
                raise ValueError("it is not of the form http://HOST:PORT")
            listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except (OSError, ValueError) as error:
            raise TrainerUsageError(
                f"cannot serve versions at {url}: {error}; name a free address of this machine"
            ) from error
        app = Starlette(routes=[Route("/versions/{number:int}/{digest}/{name}", _Files(held).answer)])
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", access_log=False))
        self._thread = threading.Thread(
            target=self._server.run, args=([listening],), name="weir-peer-server", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Serve nothing any more."""
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()


class _Files:
    def __init__(self, held: Held) -> None:
        self._held = held

    async def answer(self, request: Request) -> Response:
        number, digest, name = (request.path_params[part] for part in ("number", "digest", "name"))
        return await asyncio.to_thread(self._answer, number, digest, name, with_content=request.method != "HEAD")

    def _answer(self, number: int, digest: str, name: str, *, with_content: bool) -> Response:
        is_whole = self._held.has(number, digest)
        file = self._held.open(number, digest, name)
        if file is not None:
            size = {"content-length": str(os.fstat(file.fileno()).st_size)}
            if with_content:
                return StreamingResponse(_parts(file), headers=size, media_type="application/octet-stream")
            file.close()
            return Response(headers=size)
        if is_whole:
            return PlainTextResponse("this version is here without that file", 410)
        newest = self._held.newest()
        if newest is not None and newest > number:
            return PlainTextResponse(f"version {newest} is here", 409)
        return PlainTextResponse("not yet", 404, {RECEIVED: str(self._held.num_received)})


def _parts(file: BinaryIO) -> Iterator[bytes]:
    """An open file, which stays what it is when its folder moves."""
    with file:
        while part := file.read(_PART_BYTES):
            yield part
