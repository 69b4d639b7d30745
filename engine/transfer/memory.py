"""The routes that give the engine's memory back and take it again, so that a trainer can use the same device.

Requests have SGLang's forms; answers say what is given back. Invariants: memory is given back only while the engine is
paused and no request holds keys and values; tokens are sampled only from weights that an update brought after the
memory was taken again. An update may come first: it takes the weights' memory itself.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from typing import Literal

import msgspec
import psutil
import torch
from starlette.requests import Request
from starlette.responses import Response

from weir.engine.errors import BadRequest
from weir.engine.loop import EngineLoop
from weir.engine.responses import JsonResponse, read_body

Tag = Literal["weights", "kv_cache"]
ALL: tuple[Tag, ...] = ("weights", "kv_cache")


class MemoryBody(msgspec.Struct, frozen=True):
    """/release_memory_occupation and /resume_memory_occupation; without tags, all."""

    tags: list[Tag] | None = None


class Memory:
    """The handlers of the two routes."""

    def __init__(self, engine: EngineLoop) -> None:
        self._engine = engine

    async def release(self, request: Request) -> Response:
        """Give memory back to the device, and on a CPU to the system. Raises BadRequest unless the engine is paused."""
        tags: set[str] = set((await read_body(request, MemoryBody)).tags or ALL)

        def act() -> int:
            if self._engine.paused is None:
                raise BadRequest("memory is given back only in a pause: call /pause_generation first")
            if self._engine.load()["num_running"]:
                raise BadRequest("requests keep their keys and values in this pause: pause with mode retract or abort")
            before = self._held_bytes()
            self._engine.release(tags)
            give_back()
            return max(0, before - self._held_bytes())

        return self._answer(freed_bytes=await asyncio.wrap_future(self._engine.ask(act)))

    async def resume(self, request: Request) -> Response:
        """Take memory again; weights are to be brought by an update afterwards. What was not given back is no error."""
        tags: set[str] = set((await read_body(request, MemoryBody)).tags or ALL)
        await asyncio.wrap_future(self._engine.ask(lambda: self._engine.take_again(tags)))
        return self._answer()

    def _held_bytes(self) -> int:
        """Of the device, or of the process's memory."""
        if self._engine.decoder.device.type == "cuda":
            return int(torch.cuda.memory_reserved(self._engine.decoder.device))
        return int(psutil.Process().memory_info().rss)

    def _answer(self, **more: int) -> Response:
        content = {"success": True, "message": "Success.", "released": sorted(self._engine.released)}
        return JsonResponse(content | more)


def give_back() -> None:
    """Return what was freed to the device and to the system, which otherwise stays with the allocators."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's; other libraries return large blocks themselves
    if trim is not None:
        trim(0)
