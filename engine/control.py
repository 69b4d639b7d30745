"""The routes other than /generate and weight updates: information, pause, abort, cache, the version's name.

Invariant: an answer means that the action has happened; handlers wait for the engine loop. Answers have SGLang's
fields.
"""

from __future__ import annotations

import asyncio
import time
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from weir.engine.loop import EngineLoop
from weir.engine.responses import JsonResponse, read_body
from weir.engine.transfer.shared_memory import shared_memory_id
from weir.engine.transfer.updates import Updates


class PauseBody(msgspec.Struct, frozen=True):
    """/pause_generation."""

    mode: Literal["abort", "retract", "in_place"] = "abort"


class AbortBody(msgspec.Struct, frozen=True):
    """/abort_request."""

    rid: str | None = None
    abort_all: bool = False


class VersionBody(msgspec.Struct, frozen=True, kw_only=True):
    """/update_weight_version."""

    new_version: str
    abort_all_requests: bool = True


class Control:
    """The handlers of the control routes."""

    def __init__(
        self, engine: EngineLoop, updates: Updates, *, context_len: int, max_running: int, grammar_backend: str
    ) -> None:
        self._engine = engine
        self._updates = updates
        self._tokenizer_path = updates.model_path
        self._context_len = context_len
        self._max_running = max_running
        self._grammar_backend = grammar_backend
        self._started = time.time()

    async def health(self, _: Request) -> Response:
        """200 once the loop responds between two steps, paused or not."""
        await asyncio.wrap_future(self._engine.ask(self._engine.load))
        return PlainTextResponse()

    async def model_info(self, _: Request) -> Response:
        """The served model and its weight version."""
        config = self._engine.decoder.model.config
        return JsonResponse(
            {
                "model_path": self._updates.model_path,
                "served_model_name": self._updates.model_path,
                "tokenizer_path": self._tokenizer_path,
                "is_generation": True,
                "preferred_sampling_params": None,
                "weight_version": self._engine.version,
                "load_format": "auto",
                "reasoning_parser": None,
                "tool_call_parser": None,
                "disaggregation_mode": "null",
                "has_image_understanding": False,
                "has_audio_understanding": False,
                "model_type": config.model_type,
                "architectures": config.architectures,
            },
        )

    async def server_info(self, _: Request) -> Response:
        """Settings of the server, and its current load."""
        load = await asyncio.wrap_future(self._engine.ask(self._engine.load))
        return JsonResponse(
            {
                "model_path": self._updates.model_path,
                "served_model_name": self._updates.model_path,
                "tokenizer_path": self._tokenizer_path,
                "tp_size": 1,
                "dp_size": 1,
                "weight_version": self._engine.version,
                "context_length": self._context_len,
                "max_running_requests": self._max_running,
                "grammar_backend": self._grammar_backend,
                "device": self._engine.decoder.device.type,
                "dtype": str(self._engine.decoder.model.dtype).removeprefix("torch."),
                "startup_time": self._started,
                "staged_weight_updates": True,
                "shared_memory": shared_memory_id(),
                "relayed_weight_updates": True,
                "weight_groups": self._updates.groups,
                "delta_weight_updates": True,
                "adapter_weight_updates": True,
                "fp8_checkpoints": True,
                "quantization": self._updates.quantization,
                "internal_states": [
                    {
                        **load,
                        "paused": self._engine.paused,
                        "released_memory": sorted(self._engine.released),
                        "num_steps": self._engine.num_steps,
                        "num_tokens": self._engine.num_tokens,
                    }
                ],
                "version": "weir",
            },
        )

    async def loads(self, _: Request) -> Response:
        """The load now, in the form of SGLang's list of ranks; the embedded engine is one rank."""
        load = await asyncio.wrap_future(self._engine.ask(self._engine.load))
        rank = {
            "dp_rank": 0,
            "num_running_reqs": load["num_running"],
            "num_waiting_reqs": load["num_waiting"],
            "max_running_requests": self._max_running,
        }
        return JsonResponse({"version": "weir", "loads": [rank]})

    async def models(self, _: Request) -> Response:
        """OpenAI's list of models, with the served one."""
        card = {
            "id": self._updates.model_path,
            "object": "model",
            "created": int(self._started),
            "owned_by": "weir",
            "root": self._updates.model_path,
            "parent": None,
            "max_model_len": self._context_len,
        }
        return JsonResponse({"object": "list", "data": [card]})

    async def pause(self, request: Request) -> Response:
        """Stop stepping; answers when the loop has stopped."""
        mode = (await read_body(request, PauseBody)).mode
        await asyncio.wrap_future(self._engine.ask(lambda: self._engine.pause(mode)))
        return JsonResponse({"message": "Generation paused successfully.", "status": "ok"})

    async def resume(self, _: Request) -> Response:
        """Resume stepping."""
        await asyncio.wrap_future(self._engine.ask(self._engine.resume))
        return JsonResponse({"message": "Generation continued successfully.", "status": "ok"})

    async def abort(self, request: Request) -> Response:
        """Abort one request, or all; an unknown id is not an error."""
        wanted = await read_body(request, AbortBody)
        if wanted.abort_all or wanted.rid:
            await self._abort(wanted)
        return PlainTextResponse()

    async def flush(self, _: Request) -> Response:
        """Clear the cache; refused while requests run."""
        if await asyncio.wrap_future(self._engine.ask(self._engine.flush)):
            return PlainTextResponse("Cache flushed.\n")
        return PlainTextResponse("Flush cache failed: requests are running.\n", 400)

    async def update_version(self, request: Request) -> Response:
        """Change the version of the served weights; aborts all requests by default, as SGLang does."""
        asked = await read_body(request, VersionBody)
        if asked.abort_all_requests:
            await self._abort(AbortBody(abort_all=True))
        await asyncio.wrap_future(self._engine.ask(lambda: self._engine.rename(asked.new_version)))
        content = {"success": True, "message": f"Weight version updated to {asked.new_version}"}
        return JsonResponse({**content, "new_version": asked.new_version})

    async def _abort(self, wanted: AbortBody) -> None:
        await asyncio.wrap_future(
            self._engine.ask(lambda: self._engine.abort(lambda known: wanted.abort_all or known.rid == wanted.rid))
        )
