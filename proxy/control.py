"""The control routes: sessions, rewards, the gate, health and metrics. FastAPI, with a credential of its own.

Invariant: every route under /weir asks for the control key, compared in constant time; an agent's key opens none of
them. Errors have the one form that agents' errors have. Not here: the data path.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote

from fastapi import Depends, FastAPI, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.exceptions import HTTPException

from weir.proxy.chat import error_object
from weir.proxy.errors import BadKey, BadRequest, CallError, Conflict, NoSuchRoute, NotRecorded
from weir.proxy.gate_control import GateControl, Pause, Resume
from weir.proxy.keys import key_hash, session_key
from weir.proxy.sessions import SessionBook, is_name
from weir.store.catalog import Catalog
from weir.store.catalog_budgets import find_budget
from weir.store.catalog_rows import Budget, RewardRow
from weir.store.errors import RewardConflict, SessionConflict, SessionUnknown, StoreError
from weir.store.ids import new_id

METRICS_TYPE = "text/plain; version=0.0.4"
MAX_GROUP_SIZE = 2**31 - 1  # what an INTEGER of PostgreSQL holds
MAX_COUNT = 2**53  # what every JSON reader keeps exactly
MAX_SECONDS = 1e9
MAX_REWARDS = 1000


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="after")
    def _is_storable(self) -> Self:
        """Refuse what Python's JSON reads and neither databases nor JSON's own readers do: NaN and half characters."""
        try:
            json.dumps(self.model_dump(), allow_nan=False, ensure_ascii=False).encode()
        except ValueError as error:
            raise ValueError(f"this is not JSON that can be stored: {error}") from error
        return self


class NewBudget(_Body):
    """What a session may use in all; what is left out has no limit."""

    max_calls: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    max_output_tokens: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    max_seconds: float | None = Field(default=None, gt=0, le=MAX_SECONDS)


class NewSession(_Body):
    """POST /weir/sessions."""

    session: str | None = None
    group: str | None = None
    task: dict[str, Any] | None = None
    group_size: int | None = Field(default=None, ge=1, le=MAX_GROUP_SIZE)
    metadata: dict[str, Any] = {}
    budget: NewBudget = NewBudget()


class FinishSession(_Body):
    """POST /weir/sessions/{id}/finish."""

    status: Literal["done", "failed"] = "done"
    info: dict[str, Any] = {}


class NewReward(_Body):
    """POST /weir/rewards."""

    session: str
    call: str | None = None
    name: str = Field(min_length=1)
    value: float = Field(allow_inf_nan=False)
    source: str = Field(min_length=1)
    idempotency_key: str = Field(min_length=1)


class NewRewards(_Body):
    """POST /weir/rewards/batch: all of them are attached, or none."""

    rewards: list[NewReward] = Field(min_length=1, max_length=MAX_REWARDS)


class Control:
    """What the control routes act on."""

    def __init__(
        self,
        *,
        key: str,
        public_url: str | None,
        gates: GateControl,
        catalog: Catalog,
        sessions: SessionBook,
        is_ready: Callable[[], Awaitable[bool]],
    ) -> None:
        self.key = key
        self.gates = gates
        self.is_ready = is_ready
        self._public_url = public_url
        self._catalog = catalog
        self._sessions = sessions

    async def register(self, new: NewSession, base: str) -> dict[str, Any]:
        """Make a session with a key of its own; the same again gives the same."""
        session_id = new.session or new_id("session")
        for name in filter(None, (session_id, new.group)):
            if not is_name(name):
                raise BadRequest(f"{name!r:.220} cannot name a session or group; use 1 to 200 printable characters")
        group_id = new.group or await self._sessions.registered_group(session_id) or new_id("group")
        key = session_key(self.key, session_id)
        await asyncio.to_thread(
            self._catalog.register_session,
            session_id,
            group_id,
            task=new.task,
            group_size=new.group_size,
            metadata=new.metadata,
            key_hash=key_hash(key),
            budget=Budget(**new.budget.model_dump()),
        )
        await self._learn(session_id)
        url = f"{(self._public_url or base).rstrip('/')}/s/{quote(session_id, safe='')}/v1"
        return {"session": session_id, "group": group_id, "base_url": url, "api_key": key}

    async def show(self, session_id: str) -> dict[str, Any]:
        """A registered session."""
        row = await asyncio.to_thread(self._catalog.find_session, session_id)
        if row is None:
            raise NoSuchRoute(f"No session {session_id:.200} was registered.")
        return {
            "session": row.session_id,
            "group": row.group_id,
            "metadata": row.metadata,
            "status": row.status,
            "info": row.info,
            "created_us": row.created_us,
            "finished_us": row.finished_us,
            "budget": await self._budget_of(session_id) if row.has_budget else None,
        }

    async def finish(self, session_id: str, body: FinishSession) -> dict[str, Any]:
        """Say that a session has ended; one that was only seen, never registered, is registered by it."""
        await self._ensure_registered(session_id)
        await asyncio.to_thread(self._catalog.finish_session, session_id, status=body.status, info=body.info)
        await self._learn(session_id)
        return {"session": session_id, "status": body.status}

    async def reward(self, rewards: list[NewReward]) -> list[bool]:
        """Attach rewards, all or none; for each, whether it is new or was there already."""
        for session_id in {new.session for new in rewards}:
            await self._ensure_registered(session_id)
        rows = [
            RewardRow(
                session_id=new.session,
                call_id=new.call,
                name=new.name,
                value=new.value,
                source=new.source,
                idempotency_key=new.idempotency_key,
            )
            for new in rewards
        ]
        return await asyncio.to_thread(self._catalog.add_rewards, rows)

    async def _budget_of(self, session_id: str) -> dict[str, Any] | None:
        budget = await asyncio.to_thread(find_budget, self._catalog, session_id)
        if budget is None:
            return None
        return {name: value for name, value in asdict(budget).items() if name != "session_id"}

    async def _learn(self, session_id: str) -> None:
        row = await asyncio.to_thread(self._catalog.find_session, session_id)
        if row is not None:
            self._sessions.learn(row)

    async def _ensure_registered(self, session_id: str) -> None:
        group_id = self._sessions.seen_group(session_id)
        if group_id is None or await asyncio.to_thread(self._catalog.find_session, session_id) is not None:
            return
        await asyncio.to_thread(
            self._catalog.register_session,
            session_id,
            group_id,
            task=None,
            group_size=None,
            metadata={},
            key_hash=None,
        )


def control_app(control: Control) -> FastAPI:
    """The FastAPI application of the control routes."""
    app = FastAPI(title="Weir proxy: control", docs_url=None, redoc_url=None, openapi_url=None)

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

    _add_gate(app, control.gates, locked)
    _add_health(app, control)
    _add_errors(app)
    return app


def _add_gate(app: FastAPI, gates: GateControl, locked: list[Any]) -> None:
    """The gate of the whole proxy; under /weir/worker that of this worker alone, which its peers ask for."""

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
    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/readyz")
    async def readyz() -> Response:
        ready = await control.is_ready()
        return JSONResponse({"status": "ready" if ready else "draining, or no engine"}, 200 if ready else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(await control.gates.exposition(), media_type=METRICS_TYPE)


def _add_errors(app: FastAPI) -> None:
    """Every error leaves in the one form."""

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
    async def of_surprise(_: Request, error: Exception) -> Response:  # starlette raises it again, for the server's log
        failure = CallError(f"The proxy failed on this request ({type(error).__name__}); its log says why.")
        return JSONResponse(error_object(failure), failure.status)


def control_key(configured: str | None, root: Path) -> str:
    """The configured control key, else that of the store's key file, which is made at the first start (mode 0600)."""
    if configured is not None:
        return configured
    path = root / "control.key"
    root.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"control.key.{os.getpid()}")
    if not path.exists():
        aside.touch(mode=0o600)
        aside.write_text(new_id("weir-control") + "\n")
        try:
            os.link(aside, path)  # of several proxies that start together, the first decides
        except FileExistsError:
            pass
        finally:
            aside.unlink()
    return path.read_text().strip()
