"""The engine's HTTP application: SGLang's native routes, as routers and trainers use them, and the shape of errors."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from weir.engine.control import Control
from weir.engine.errors import BadRequest
from weir.engine.generate import Generate
from weir.engine.responses import error_response
from weir.engine.transfer.memory import Memory
from weir.engine.transfer.updates import Updates


def make_app(
    generate: Generate, control: Control, updates: Updates, memory: Memory, shutdown: Callable[[], None]
) -> Starlette:
    """The application; `shutdown` runs when the server ends."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        shutdown()

    app = Starlette(
        routes=_routes(generate, control, updates, memory),
        exception_handlers={
            HTTPException: _no_route,
            BadRequest: _bad_request,
            ClientDisconnect: _client_gone,
            Exception: _failed,
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return app


def _routes(generate: Generate, control: Control, updates: Updates, memory: Memory) -> list[Route]:
    return [
        Route("/generate", generate, methods=["POST", "PUT"]),
        Route("/health", control.health),
        Route("/health_generate", control.health),
        Route("/model_info", control.model_info),
        Route("/get_model_info", control.model_info),
        Route("/server_info", control.server_info),
        Route("/get_server_info", control.server_info),
        Route("/v1/loads", control.loads),
        Route("/v1/models", control.models),
        Route("/pause_generation", control.pause, methods=["POST"]),
        Route("/continue_generation", control.resume, methods=["POST"]),
        Route("/abort_request", control.abort, methods=["POST"]),
        Route("/flush_cache", control.flush, methods=["GET", "POST"]),
        Route("/update_weight_version", control.update_version, methods=["POST"]),
        Route("/update_weights_from_disk", updates.from_disk, methods=["POST"]),
        Route("/release_memory_occupation", memory.release, methods=["GET", "POST"]),
        Route("/resume_memory_occupation", memory.resume, methods=["GET", "POST"]),
        Route("/begin_weight_update", updates.begin, methods=["POST"]),
        Route("/update_weights_from_tensor", updates.from_tensor, methods=["POST"]),
        Route("/init_weights_update_group", updates.join, methods=["POST"]),
        Route("/update_weights_from_distributed", updates.from_distributed, methods=["POST"]),
        Route("/update_weights_from_delta", updates.from_delta, methods=["POST"]),
        Route("/update_weights_from_adapter", updates.from_adapter, methods=["POST"]),
        Route("/destroy_weights_update_group", updates.leave, methods=["POST"]),
        Route("/end_weight_update", updates.end, methods=["POST"]),
        Route("/weights_checker", updates.check, methods=["GET", "POST"]),
    ]


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 405:
        methods = " or ".join(sorted((error.headers or {})["Allow"].split(", ")))
        return error_response(f"{path} takes {methods}, not {request.method}", 405)
    return error_response(f"{path} is no route of the embedded engine", error.status_code)


async def _bad_request(_: Request, error: Exception) -> Response:
    return error_response(str(error), 400)


async def _client_gone(_: Request, __: Exception) -> Response:
    """The client left before its request was read: nobody gets this answer."""
    return Response(status_code=499)


async def _failed(_: Request, error: Exception) -> Response:
    """A fault of the engine; starlette raises it again behind this answer, and the server logs it."""
    return error_response(f"{type(error).__name__}: {error}", 500)
