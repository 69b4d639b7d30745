"""The proxy's one ASGI callable: agents' calls on the raw data path, everything under /weir to the control routes.

Invariant: no request leaves without an answer in the form its client expects; what was not foreseen is a 500 that is
logged with its traceback. Not here: how a call is served (serving.py).
"""

from __future__ import annotations

import asyncio
import logging
import time

from weir.proxy.conversation.call_request import Dialect
from weir.proxy.conversation.caller import Names
from weir.proxy.dialects import messages_answer
from weir.proxy.dialects.chat_answer import models_body
from weir.proxy.dialects.messages_request import parse_for_count
from weir.proxy.dialects.registry import DIALECTS
from weir.proxy.errors import BadRequest, CallError, NoSuchRoute, Unavailable, UnknownModel
from weir.proxy.http.admission import Admission
from weir.proxy.http.exchange import Exchange, Receive, Scope, Send
from weir.proxy.metrics import Metrics
from weir.proxy.relay.levels import ROUTES
from weir.proxy.relay.pipeline import Relay
from weir.proxy.serving.pipeline import Serving
from weir.proxy.sessions.access_keys import Keys
from weir.store.errors import StoreError
from weir.store.records.ids import new_id

CONTROL_PATHS = ("/weir/", "/healthz", "/readyz", "/metrics")
CHAT, MESSAGES, COUNT_TOKENS = "/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"
LEFT = "499"  # in the metrics: the client left before it was answered

logger = logging.getLogger("weir.proxy.app")


class App:
    """Routes by path; a dict of dialects is the whole routing table of the data path."""

    def __init__(
        self, serving: Serving | Relay, control: object, metrics: Metrics, *, keys: Keys, admission: Admission
    ) -> None:
        self._serving = serving
        self._keys = keys
        self._admission = admission
        self.control = control
        self._metrics = metrics
        self._created_s = int(time.time())
        self._dialects: dict[str, Dialect] = {route: DIALECTS[name] for route, name in ROUTES.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope["path"].startswith(CONTROL_PATHS):
            exchange = Exchange(scope, receive, send)
            try:
                await self._serve_agent(exchange)
            finally:
                exchange.close()
        elif scope["type"] in ("http", "lifespan"):
            await self.control(scope, receive, send)  # type: ignore[operator]
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _serve_agent(self, exchange: Exchange) -> None:
        route, names = split_path(exchange.path)
        dialect = self._dialects[
            route if route in self._dialects else MESSAGES if speaks_anthropic(exchange, route) else CHAT
        ]
        status = "200"
        try:
            await self._dispatch(exchange, route, names)
        except RecursionError:
            status = await self._fail(
                exchange, dialect, BadRequest("The body is nested too deeply.", code="invalid_json")
            )
        except CallError as error:
            status = await self._fail(exchange, dialect, error)
        except StoreError as error:
            logger.error("a request to %s was refused: %s", route, error)
            status = await self._fail(
                exchange, dialect, Unavailable("The proxy's catalog cannot be read now.", code="no_catalog")
            )
        except asyncio.CancelledError:
            status = LEFT
            if not exchange.client_left:
                raise
        except Exception:  # the edge of a request: the client gets an answer, we get the traceback
            error_id = new_id("error")
            logger.exception("%s: a request to %s failed", error_id, route)
            failure = CallError(f"The proxy failed on this request; its log says why, at {error_id}.")
            status = await self._fail(exchange, dialect, failure)
        finally:
            self._metrics.requests.labels(dialect=dialect.name, status=status).inc()

    async def _fail(self, exchange: Exchange, dialect: Dialect, error: CallError) -> str:
        await exchange.fail(error, dialect.error(error))
        return str(error.status)

    async def _dispatch(self, exchange: Exchange, route: str, names: Names) -> None:
        exchange.key_names = await self._keys.admit(exchange.headers)
        if isinstance(self._serving, Relay):
            with self._admission.place() as exchange.place:
                await self._serving.serve(exchange, route, names)
            return
        dialect = self._dialects.get(route)
        if dialect is not None:
            _require_method(exchange, "POST")
            with self._admission.place() as exchange.place:
                await self._serving.serve(exchange, dialect, names)
        elif route == COUNT_TOKENS:
            _require_method(exchange, "POST")
            with self._admission.place():
                num_tokens = await self._serving.count_tokens(exchange, parse_for_count)
            await exchange.answer(200, messages_answer.count_body(num_tokens))
        elif route == "/v1/models" or route.startswith("/v1/models/"):
            _require_method(exchange, "GET", "HEAD")
            await self._list_models(exchange, route.removeprefix("/v1/models").strip("/"))
        else:
            routes = ", ".join((*self._dialects, COUNT_TOKENS))
            raise NoSuchRoute(f"Nothing is served at {route:.200}; the agents' routes are {routes}, /v1/models.")

    async def _list_models(self, exchange: Exchange, wanted: str) -> None:
        assert isinstance(self._serving, Serving)
        names = self._serving.model_names
        if wanted and wanted not in names:
            raise UnknownModel(f"The model {wanted!r:.200} is not served here; {names[0]!r} is.", param="model")
        body = messages_answer.models_body if speaks_anthropic(exchange, exchange.path) else models_body
        await exchange.answer(200, body(names, self._created_s, only=wanted or None))


def speaks_anthropic(exchange: Exchange, route: str) -> bool:
    """Whether a client of Anthropic's asks."""
    return route.startswith("/v1/messages") or "anthropic-version" in exchange.headers


def split_path(path: str) -> tuple[str, Names]:
    """The route of a decoded path, and the session and group that it names: /g/{group}/s/{session}/v1/…"""
    group_id = session_id = None
    rest = path
    if rest.startswith("/g/"):
        group_id, _, rest = rest[3:].partition("/")
        rest = "/" + rest
    if rest.startswith("/s/"):
        session_id, _, rest = rest[3:].partition("/")
        rest = "/" + rest
    return rest.rstrip("/"), Names(session_id=session_id, group_id=group_id)


def _require_method(exchange: Exchange, *methods: str) -> None:
    if exchange.method not in methods:
        exchange.answer_headers["allow"] = ", ".join(methods)
        raise NoSuchRoute(f"{exchange.path:.200} takes {methods[0]}, not {exchange.method:.20}.", status=405)
