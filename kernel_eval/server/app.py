"""The HTTP routes of the server: evaluations, single or in batches, and operators' requests.

Invariants: this process imports neither torch nor a candidate; a well-formed request is answered with HTTP 200 and a
structured result whatever the candidate does; /health answers while evaluations run. Errors of the caller get 4xx, and
a full queue gets 503, both with the body {"error": {"message", "type"}}.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import secrets
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from weir.kernel_eval.config import KernelEvalConfig
from weir.kernel_eval.errors import InsecureBinding, NoSuchGpu
from weir.kernel_eval.exec_result import exec_fields
from weir.kernel_eval.gpu.reset import GpuBusy
from weir.kernel_eval.gpu.status import GpuStatusError
from weir.kernel_eval.judge.source import rules
from weir.kernel_eval.machines.gpu_local import machine_for
from weir.kernel_eval.machines.local import Machines
from weir.kernel_eval.sandbox import containment
from weir.kernel_eval.server.batches import answers, error_type, read_batch
from weir.kernel_eval.server.evaluations import Evaluations, Refused
from weir.kernel_eval.server.metrics import Counts

Result = TypeVar("Result")
_GPU_NUMBER = re.compile(r"[0-9]{1,6}")


class EvalServer:
    """The route handlers of one server."""

    def __init__(self, config: KernelEvalConfig, machines: Machines) -> None:
        self._config = config
        self._machines = machines
        self._started = time.monotonic()
        self._counts = Counts()
        self._evaluations = Evaluations(config, machines, self._counts)
        self._counts.watch("queue", "Evaluations that wait for a slot.", lambda: machines.waiting)
        self._counts.watch("running", "Evaluations under way.", lambda: machines.running)
        self._counts.watch("process_starts", "Starts of zygotes and judges.", lambda: machines.num_starts)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Start the machines, and close them at the end."""
        await self._machines.start()
        try:
            yield
        finally:
            await self._machines.close()

    async def eval(self, request: Request) -> Response:
        """POST /eval."""
        self._authorize(request)
        wanted = self._evaluations.read(await self._body(request, self._config.max_body_bytes))
        reply = await self._evaluations.evaluate(wanted)
        return _json(msgspec.to_builtins(reply) | exec_fields(reply))

    async def batch(self, request: Request) -> Response:
        """POST /eval/batch: JSON Lines, one for each item."""
        self._authorize(request)
        body = await self._body(request, self._config.max_batch_bytes)
        items = read_batch(body, self._config.max_batch)
        lines = answers(items, self._evaluations, 2 * self._machines.num_slots)
        return StreamingResponse(lines, media_type="application/x-ndjson")

    async def check_task(self, request: Request) -> Response:
        """POST /tasks/check. A check whose client is gone is ended."""
        self._authorize(request)
        body = await self._body(request, self._config.max_body_bytes)
        return _json(await _while_connected(request, self._evaluations.check_task(body)))

    async def gpus(self, request: Request) -> Response:
        """GET /gpu_status: the GPUs of this machine, and whether evaluations use them."""
        self._authorize(request)
        return _json(await self._machines.gpus())

    async def reset_gpu(self, request: Request) -> Response:
        """POST /reset_gpu/{id}: 404 for an unknown GPU, 409 for one that is in use. Raises HTTPException."""
        self._authorize(request)
        number = request.path_params["id"]
        if not _GPU_NUMBER.fullmatch(number):
            raise HTTPException(404, "a GPU's number is expected; GET /gpu_status lists them")
        await self._machines.reset_gpu(int(number))
        return _json({"reset": int(number)})

    async def reset_devices(self, request: Request) -> Response:
        """POST /reset_devices: resets every unused GPU, and reports those in use."""
        self._authorize(request)
        return _json(await self._machines.reset_devices())

    async def cleanup(self, request: Request) -> Response:
        """POST /cleanup: ends idle judges, and removes the folders of servers that are gone."""
        self._authorize(request)
        return _json(await self._machines.cleanup())

    async def health(self, request: Request) -> Response:
        """GET /health: 200 while evaluations are accepted, 503 while processes start."""
        state = {
            **self._machines.health(),
            "rules": {name: rule.description for name, rule in rules.RULES.items()},
            "uptime_s": round(time.monotonic() - self._started, 3),
        }
        return _json(state, 200 if state["ready"] else 503)

    async def metrics(self, request: Request) -> Response:
        """GET /metrics, in Prometheus' text form."""
        return Response(self._counts.text(), media_type="text/plain; version=0.0.4")

    def _authorize(self, request: Request) -> None:
        key = self._config.api_key
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if key is not None and not secrets.compare_digest(given.encode(), key.encode()):
            raise HTTPException(401, "a key is required: send Authorization: Bearer KEY")

    async def _body(self, request: Request, max_bytes: int) -> bytes:
        body = bytearray()
        if int(request.headers.get("content-length", 0)) > max_bytes:  # refused before the body is read
            raise HTTPException(413, f"the body is larger than {max_bytes} bytes")
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_bytes:
                raise HTTPException(413, f"the body is larger than {max_bytes} bytes")
        return bytes(body)


async def _while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of the work, which is cancelled when the client goes away. Raises `ClientDisconnect` then."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(request.receive())  # the body was read: what comes next is the disconnection
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))


def create_app(config: KernelEvalConfig) -> Starlette:
    """The application. Starts nothing. Raises `SandboxUnavailable`, `InsecureBinding` or `RayUnavailable`."""
    if config.api_key is None and not _is_loopback(config.host):
        raise InsecureBinding(
            f"kernel_eval.host is {config.host}, which others can reach; set kernel_eval.api_key too, or use 127.0.0.1"
        )
    machines, description = _machines(config)
    server = EvalServer(config, machines)
    app = Starlette(
        routes=[
            Route("/eval", server.eval, methods=["POST"]),
            Route("/eval/batch", server.batch, methods=["POST"]),
            Route("/tasks/check", server.check_task, methods=["POST"]),
            Route("/health", server.health),
            Route("/metrics", server.metrics),
            Route("/gpu_status", server.gpus),
            Route("/reset_gpu/{id}", server.reset_gpu, methods=["POST"]),
            Route("/reset_devices", server.reset_devices, methods=["POST"]),
            Route("/cleanup", server.cleanup, methods=["POST"]),
        ],
        exception_handlers={
            HTTPException: _http_error,
            ClientDisconnect: _client_gone,
            Refused: _refusal,
            GpuBusy: _gpu_busy,
            GpuStatusError: _no_gpu_status,
            NoSuchGpu: _no_such_gpu,
            Exception: _internal_error,
        },
        lifespan=server.lifespan,
    )
    fixed = "" if config.draws_from is None else " draws=fixed (kernel_eval.draws_from: inputs can be foretold)"
    app.state.description = description + fixed
    return app


def _machines(config: KernelEvalConfig) -> tuple[Machines, str]:
    if config.ray is not None:
        from weir.kernel_eval.machines.ray_cluster import RayMachines  # Ray is an extra

        return RayMachines(config, config.ray), f"ray={config.ray}"
    level = containment.choose_level(config.sandbox, config.min_sandbox)
    return machine_for(config, level), f"sandbox={level}"


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _failure(error.status_code, error.detail)


async def _client_gone(request: Request, error: Exception) -> Response:
    return _failure(400, "the client went away")  # nobody reads this


async def _refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    answer = _failure(error.status, error.message)
    if error.retry_after_s is not None:
        answer.headers["retry-after"] = str(error.retry_after_s)
    return answer


async def _gpu_busy(request: Request, error: Exception) -> Response:
    return _failure(409, str(error))


async def _no_such_gpu(request: Request, error: Exception) -> Response:
    return _failure(404, str(error))


async def _no_gpu_status(request: Request, error: Exception) -> Response:
    return _failure(503, str(error))


async def _internal_error(request: Request, error: Exception) -> Response:
    return _failure(500, f"{type(error).__name__}: {error}")


def _failure(status: int, message: str) -> Response:
    return _json({"error": {"message": message, "type": error_type(status)}}, status)


def _json(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status_code=status, media_type="application/json")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
