"""A client of the proxy's control routes for runners of agents: registers and finishes sessions.

Connection errors, timeouts, 429 and 5xx answers are retried with exponential backoff, so that a proxy may restart
during a `weir run`. Both requests are idempotent: the session's id is made here. The credential opens all control
routes and must not reach agents.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import httpx
import stamina

from weir.agents.config import AgentsConfig
from weir.agents.errors import ProxyRefused, ProxyUnavailable

LONGEST_WAIT_S = 5.0
SOURCE = "weir run"  # of rewards


class _NoAnswer(Exception):
    """A request that may be repeated: the proxy did not answer, or answered 429 or 5xx."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A registered session; its agent gets only `base_url` and `api_key`."""

    session_id: str
    group_id: str
    base_url: str
    api_key: str


class ControlClient:
    """One HTTP client for all sessions of a run; `async with` closes it."""

    def __init__(self, proxy_url: str, control_key: str, config: AgentsConfig) -> None:
        self._url = proxy_url.rstrip("/")
        self._config = config
        limits = {name: getattr(config, name) for name in ("max_calls", "max_output_tokens", "max_seconds")}
        self._budget = {name: limit for name, limit in limits.items() if limit is not None}
        self._http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {control_key}"}, timeout=config.control_timeout_s, trust_env=False
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def register(
        self, *, group_id: str, task: dict[str, Any], group_size: int | None, metadata: dict[str, Any]
    ) -> Registered:
        """Register one session, with the budget of the settings. Without a group size no round claims its group.

        Raises `ProxyUnavailable` or `ProxyRefused`.
        """
        body: dict[str, Any] = {"group": group_id, "task": task, "metadata": metadata, "budget": self._budget}
        if group_size is not None:
            body["group_size"] = group_size
        answer = await self._post("/weir/sessions", body | {"session": f"session_{uuid.uuid4().hex}"})
        return Registered(
            session_id=answer["session"],
            group_id=answer["group"],
            base_url=answer["base_url"],
            api_key=answer["api_key"],
        )

    async def finish(self, session_id: str, *, status: str, info: dict[str, Any]) -> None:
        """Finish a session as "done", "failed" or "aborted". Raises `ProxyUnavailable` or `ProxyRefused`."""
        await self._post(f"/weir/sessions/{session_id}/finish", {"status": status, "info": info})

    async def reward(self, session_id: str, rewards: Mapping[str, float]) -> None:
        """Attach rewards to a session; repeating it changes nothing. Raises `ProxyUnavailable` or `ProxyRefused`."""
        if not rewards:
            return
        rows = [
            {
                "session": session_id,
                "name": name,
                "value": value,
                "source": SOURCE,
                "idempotency_key": f"{SOURCE}:{name}",
            }
            for name, value in rewards.items()
        ]
        await self._post("/weir/rewards/batch", {"rewards": rows})

    async def version(self) -> str | None:
        """The weight version that the proxy serves, as it was last published or recorded; None before the first call.

        Raises `ProxyUnavailable` or `ProxyRefused`.
        """
        state = await self._request("GET", "/weir/state", None)
        version = state.get("announced_version") or state.get("weight_version")
        return None if version is None else str(version)

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        return await self._request("POST", path, body)

    async def _request(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        attempts = self._config.control_retries + 1
        retries = stamina.retry_context(
            on=_NoAnswer,
            attempts=attempts,
            timeout=None,
            wait_initial=self._config.retry_wait_s,
            wait_max=LONGEST_WAIT_S,
            wait_jitter=0,
        )
        try:
            async for attempt in retries:
                with attempt:
                    return await self._request_once(method, path, body)
        except _NoAnswer as error:
            raise ProxyUnavailable(
                f"no answer from the proxy at {self._url}{path} in {attempts} attempts ({error}); "
                "is `weir proxy` or `weir up` running?"
            ) from error

    async def _request_once(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        try:
            answer = await self._http.request(method, self._url + path, json=body)
        except httpx.TransportError as error:
            raise _NoAnswer(f"{type(error).__name__} {error}".strip()) from error
        if answer.status_code < 400:
            return answer.json()
        failure = f"HTTP {answer.status_code}: {answer.text[:200]}"
        if answer.status_code >= 500 or answer.status_code == 429:
            raise _NoAnswer(failure)
        raise ProxyRefused(f"the proxy refused {path}: {failure}", status=answer.status_code)
