"""The ASGI application of the engine: a table of routes, and one place where what goes wrong becomes an answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from weir.engine.asgi import ClientGone, Handler, Receive, Scope, Send, answer_lifespan, read_body, send_error
from weir.engine.control import Control
from weir.engine.errors import BadRequest
from weir.engine.generate import Generate

log = logging.getLogger(__name__)

Routes = Mapping[str, Mapping[str, Handler]]  # path → method → handler


def make_routes(generate: Generate, control: Control) -> Routes:
    """SGLang's native routes, those that routers and trainers use."""
    info, server, health = control.model_info, control.server_info, control.health
    return {
        "/generate": {"POST": generate, "PUT": generate},
        "/health": {"GET": health},
        "/health_generate": {"GET": health},
        "/model_info": {"GET": info},
        "/get_model_info": {"GET": info},
        "/server_info": {"GET": server},
        "/get_server_info": {"GET": server},
        "/v1/models": {"GET": control.models},
        "/pause_generation": {"POST": control.pause},
        "/continue_generation": {"POST": control.resume},
        "/abort_request": {"POST": control.abort},
        "/flush_cache": {"GET": control.flush, "POST": control.flush},
        "/update_weights_from_disk": {"POST": control.update_weights},
        "/update_weight_version": {"POST": control.update_version},
        "/weights_checker": {"GET": control.check_weights, "POST": control.check_weights},
    }


class App:
    """Routes a request to its handler; `shutdown` runs when the server ends."""

    def __init__(self, routes: Routes, shutdown: Callable[[], None]) -> None:
        self._routes = routes
        self._shutdown = shutdown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry point."""
        if scope["type"] == "lifespan":
            await answer_lifespan(receive, send, self._shutdown)
            return
        assert scope["type"] == "http", scope["type"]
        methods = self._routes.get(scope["path"])
        if methods is None:
            await send_error(send, f"{scope['path']} is no route of the embedded engine", 404)
        elif scope["method"] not in methods:
            await send_error(send, f"{scope['path']} takes {' or '.join(methods)}, not {scope['method']}", 405)
        else:
            await _serve(methods[scope["method"]], receive, send)


async def _serve(handler: Handler, receive: Receive, send: Send) -> None:
    try:
        await handler(await read_body(receive), receive, send)
    except BadRequest as error:
        await send_error(send, str(error))
    except ClientGone:
        pass
    except Exception as error:  # the request's edge
        log.exception("a request failed")
        await send_error(send, f"{type(error).__name__}: {error}", 500)
