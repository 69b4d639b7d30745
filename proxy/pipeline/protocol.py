"""The interface between routing and the two pipelines: `serving` renders and parses, `relay` passes bodies through.

Both take a request the same way: read the body, join or replay a retry (`client_retries.py`, `replay.py`), open calls,
answer them under a watch (`answer_guard.py`), each piece past the gate (`dispatch.py`), each end through a recorder.
"""

from __future__ import annotations

from typing import Protocol

from weir.proxy.conversation.caller import Caller
from weir.proxy.http.exchange import Exchange


class Pipeline(Protocol):
    """Serves agents' requests at one capture level."""

    async def serve(self, exchange: Exchange, route: str, caller: Caller) -> None:
        """Serve one request; `route` is its path without the names of session and group.

        Raises `CallError` where nothing was answered yet, and CancelledError where the client left.
        """
        ...
