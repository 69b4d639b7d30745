"""Admission control: how many requests the proxy holds at the same time.

Invariants: at most `max_places` requests have a place; a request that ends gives its place back. A request has its
place before its body is read, so that a refused one costs nothing. When it goes upstream is decided in `departures.py`.
"""

from __future__ import annotations

from types import TracebackType

from weir.proxy.errors import Overloaded


class Admission:
    """Counts places; as a context manager, one request's. One event loop owns it."""

    def __init__(self, max_places: int) -> None:
        self.num_places = 0
        self._max_places = max_places

    def __enter__(self) -> None:
        """Take a place. Raises `Overloaded` where there is none."""
        if self.num_places >= self._max_places:
            raise Overloaded(
                f"the proxy is full: it holds {self.num_places} requests; try again later, or raise proxy.max_queued"
            )
        self.num_places += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.num_places -= 1
