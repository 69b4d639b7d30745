"""The control routes in FastAPI: authorisation, bodies, and errors in one form.

Invariant: every route under /weir requires the control key, compared in constant time; an agent's key opens none of
them. Errors have the form of agents' errors.
"""

from __future__ import annotations

import hmac
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from weir.proxy.control.gates import GateControl, Pause, Resume
from weir.proxy.control.schemas import FinishSession, NewReward, NewRewards, NewSession
from weir.proxy.control.service import Control
from weir.proxy.errors import BadKey, BadRequest, CallError, Conflict, NoSuchRoute, NotRecorded, error_object
from weir.store.errors import RewardConflict, SessionConflict, SessionUnknown, StoreError

METRICS_TYPE = "text/plain; version=0.0.4"


def control_app(control: Control) -> FastAPI:
    """The FastAPI application of the control routes."""
    app = FastAPI(title="Weir proxy: control", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)

    def authorised(authorization: Annotated[str, Header()] = "") -> None:
        given = authorization.removeprefix("Bearer ").strip()
        if not hmac.compare_digest(given.encode(), control.key.encode()):
            raise BadKey("the control key is missing or wrong; it is in control.key in the store's folder")

    locked = [Depends(authorised)]

    @app.post("/weir/sessions", dependencies=locked)
    async def register(body: NewSession, request: Request) -> dict[str, Any]:
        return await control.register(body, str(request.base_url))

    @app.get("/weir/sessions/{session_id}", dependencies=locked)
    async def show(session_id: str) -> dict[str, Any]:
        return await control.show(session_id)

    @app.post("/weir/sessions/{session_id}/finish", dependencies=locked)
    async def finish(session_id: str, body: FinishSession | None = None) -> dict[str, Any]:
        return await control.finish(session_id, body or FinishSession())

    @app.post("/weir/rewards", dependencies=locked)
    async def reward(body: NewReward) -> dict[str, Any]:
        return {"session": body.session, "added": (await control.reward([body]))[0]}

    @app.post("/weir/rewards/batch", dependencies=locked)
    async def reward_batch(body: NewRewards) -> dict[str, Any]:
        added = await control.reward(body.rewards)
        return {"rewards": [{"session": r.session, "added": a} for r, a in zip(body.rewards, added, strict=True)]}

    @app.get("/weir/worker/in_flight/{request_hash}", dependencies=locked)
    async def in_flight(request_hash: str) -> dict[str, bool]:
        return {"in_flight": control.has_in_flight(request_hash)}

    @app.post("/weir/worker/check_engines", dependencies=locked)
    async def check_engines() -> dict[str, Any]:
        await control.check_engines()
        return {}

    _add_gate(app, control.gates, locked)
    _add_health(app, control)
    _add_errors(app)
    return app


def _add_gate(app: FastAPI, gates: GateControl, locked: list[Any]) -> None:
    """Routes of the whole proxy's gate, and under /weir/worker those of this worker's alone, for its peers."""

    @app.get("/weir/state", dependencies=locked)
    async def state() -> dict[str, Any]:
        return await gates.state()

    @app.post("/weir/pause", dependencies=locked)
    async def pause(body: Pause | None = None) -> dict[str, Any]:
        return await gates.pause(body or Pause())

    @app.post("/weir/resume", dependencies=locked)
    async def resume(body: Resume | None = None) -> dict[str, Any]:
        return await gates.resume(body or Resume())

    @app.get("/weir/worker/state", dependencies=locked)
    async def worker_state() -> dict[str, Any]:
        return gates.state_here()

    @app.post("/weir/worker/pause", dependencies=locked)
    async def pause_worker(body: Pause) -> dict[str, Any]:
        return await gates.pause_here(body)

    @app.post("/weir/worker/resume", dependencies=locked)
    async def resume_worker(body: Resume) -> dict[str, Any]:
        return gates.resume_here(body)

    @app.get("/weir/worker/metrics", dependencies=locked)
    async def worker_metrics() -> Response:
        return Response(gates.exposition_here(), media_type=METRICS_TYPE)


def _add_health(app: FastAPI, control: Control) -> None:
    @app.head("/healthz")
    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "alive"}

    @app.head("/readyz")
    @app.get("/readyz")
    async def readyz() -> Response:
        ready = await control.is_ready()
        return JSONResponse(
            {"status": "ready" if ready else "draining, no engine, or a log that takes no records: see /weir/state"},
            200 if ready else 503,
        )

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(await control.gates.exposition(), media_type=METRICS_TYPE)


def _add_errors(app: FastAPI) -> None:
    """Give every error the same JSON form."""

    @app.exception_handler(CallError)
    async def of_call(_: Request, error: CallError) -> Response:
        return JSONResponse(error_object(error), error.status)

    @app.exception_handler(StoreError)
    async def of_store(_: Request, error: StoreError) -> Response:
        if isinstance(error, SessionUnknown):
            return JSONResponse(error_object(NoSuchRoute(str(error))), 404)
        known = isinstance(error, SessionConflict | RewardConflict)
        failure = Conflict(str(error)) if known else NotRecorded(str(error))
        return JSONResponse(error_object(failure), failure.status)

    @app.exception_handler(RequestValidationError)
    async def of_body(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = "" if first["type"] == "json_invalid" else ".".join(str(part) for part in first["loc"][1:])
        return JSONResponse(error_object(BadRequest(f"{where or 'body'}: {first['msg']}", param=where or None)), 400)

    @app.exception_handler(HTTPException)
    async def of_route(request: Request, error: HTTPException) -> Response:
        failure = NoSuchRoute(f"{request.url.path:.200}: {error.detail}", status=error.status_code)
        return JSONResponse(error_object(failure), failure.status)

    @app.exception_handler(Exception)
    async def of_unforeseen(
        _: Request, error: Exception
    ) -> Response:  # starlette raises it again, for the server's log
        failure = CallError(f"The proxy failed on this request ({type(error).__name__}); its log says why.")
        return JSONResponse(error_object(failure), failure.status)
