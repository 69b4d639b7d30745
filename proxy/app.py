"""The proxy's one ASGI callable: agents' calls on the raw data path, everything under /weir to the control routes.

Invariant: no request leaves without an answer in the form its client expects; what was not foreseen is a 500 that is
logged with its traceback.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec
from xxhash import xxh3_128_hexdigest

from weir.proxy.conversation.call_request import Dialect
from weir.proxy.conversation.caller import Caller, Names, named_session
from weir.proxy.dialects.registry import ROUTES, error_dialect, session_in_body
from weir.proxy.errors import BadRequest, CallError, Unavailable
from weir.proxy.http.cors import permission, preflight
from weir.proxy.http.exchange import Exchange, Receive, Scope, Send
from weir.proxy.metrics import Metrics
from weir.proxy.pipeline.protocol import Pipeline
from weir.proxy.recording.refusals import Refusals
from weir.proxy.sessions.access_keys import Keys
from weir.store.catalog.refusals import Refusal
from weir.store.errors import StoreError
from weir.store.records.ids import new_id

CONTROL_PATHS = ("/weir/", "/healthz", "/readyz", "/metrics")
ABOUT = msgspec.json.encode(
    {
        "name": "weir proxy",
        "about": "Records what a model did, token for token. Agents need the base_url <this address>/v1.",
        "agents": [*ROUTES, "/v1/messages/count_tokens", "/v1/models"],
        "operators": ["/readyz", "/healthz", "/metrics", "/weir/state"],
    }
)
MESSAGE_LENGTH = 500  # characters of a refusal's message that are kept
LEFT = "499"  # in the metrics: the client left before it was answered

logger = logging.getLogger("weir.proxy.app")


class App:
    """Routes by path: agents' calls to the pipeline of this proxy's capture level, /weir to the control routes."""

    def __init__(
        self,
        pipeline: Pipeline,
        control: object,
        metrics: Metrics,
        *,
        keys: Keys,
        refusals: Refusals,
        cors_origins: Sequence[str],
    ) -> None:
        self.control = control
        self._pipeline = pipeline
        self._refusals = refusals
        self._cors_origins = frozenset(cors_origins)
        self._keys = keys
        self._metrics = metrics

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
        exchange.answer_headers |= permission(self._cors_origins, exchange.headers)
        asked = preflight(self._cors_origins, exchange.method, exchange.headers)
        if asked is not None:  # browsers ask without the key
            exchange.answer_headers |= asked
            await exchange.answer(204, b"")
            return
        if exchange.path == "/" and exchange.method in ("GET", "HEAD"):
            await exchange.answer(200, ABOUT)
            return
        route, names = split_path(exchange.path)
        dialect = error_dialect(route, exchange.headers)
        status = "200"
        caller = None
        try:
            key, access_key = await self._keys.admit(exchange.headers)
            caller = Caller(path=names, key=key, access_key=access_key)
            await self._pipeline.serve(exchange, route, caller)
        except RecursionError:
            refused = BadRequest("The body is nested too deeply.", code="invalid_json")
            status = await self._refuse(exchange, dialect, refused, route, caller)
        except CallError as error:
            status = await self._refuse(exchange, dialect, error, route, caller)
        except StoreError as error:
            logger.error("a request to %s was refused: %s", route, error)
            status = await self._fail(
                exchange, dialect, Unavailable("The proxy's catalog cannot be read now.", code="no_catalog")
            )
        except asyncio.CancelledError:
            status = LEFT
            if not exchange.abandoned:
                raise
        except Exception:  # the edge of a request: the client gets an answer, we get the traceback
            error_id = new_id("error")
            logger.exception("%s: a request to %s failed", error_id, route)
            failure = CallError(f"The proxy failed on this request; its log says why, at {error_id}.")
            status = await self._fail(exchange, dialect, failure)
        finally:
            self._metrics.requests.labels(dialect=dialect.name, status=status).inc()

    async def _refuse(
        self, exchange: Exchange, dialect: Dialect, error: CallError, route: str, caller: Caller | None
    ) -> str:
        """Answer with an error; one that the agent made is logged and noted.

        The log has names alone, because messages can quote its prompt. The store has the message, as it has prompts. Of
        clients without a valid key nothing is noted that they can choose freely, so that they cannot displace others.
        """
        if error.status < 500:
            code = error.code or error.kind
            what = " ".join(part for part in (code, error.param) if part)
            logger.info("refused %s %.200s with %d: %.200s", exchange.method, exchange.path, error.status, what)
            body = exchange.body_read
            session_id = None
            if caller is not None:
                session_id = named_session(caller, exchange.headers, session_in_body(dialect, body, exchange.headers))
            self._refusals.note(
                Refusal(
                    session_id=session_id,
                    key_name=caller.access_key if caller is not None else None,
                    method=exchange.method[:20],
                    route=route[:200] if caller is not None or route in ROUTES else "",
                    status=error.status,
                    code=code,
                    field=error.param[:200] if error.param is not None else None,
                    message=error.message[:MESSAGE_LENGTH],
                    body_digest=xxh3_128_hexdigest(body) if body is not None else None,
                )
            )
        return await self._fail(exchange, dialect, error)

    async def _fail(self, exchange: Exchange, dialect: Dialect, error: CallError) -> str:
        await exchange.fail(error, dialect.error(error))
        return str(error.status)


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
