"""Admission and limits on the body, applied before the body is parsed."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from weir.proxy.config import ProxyConfig
from weir.proxy.http.admission import Admission
from weir.proxy.http.exchange import Exchange


class Intake:
    """Admits requests and reads their bodies."""

    def __init__(self, config: ProxyConfig, admission: Admission) -> None:
        self._max_bytes = config.max_request_bytes
        self._timeout_s = config.body_timeout_s
        self.place = admission  # for one request, as a context, which raises `Overloaded` where there is none

    def body(self, exchange: Exchange) -> Coroutine[Any, Any, bytes]:
        """The request's body. Raises `RequestTooLarge` or `BodyTooSlow`."""
        return exchange.body(self._max_bytes, self._timeout_s)
