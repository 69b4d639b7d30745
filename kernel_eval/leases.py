"""The right to have processes forked for one evaluation: sockets that travel beside a `Job`, in this order."""

from __future__ import annotations

import socket
from typing import NamedTuple


class Leases(NamedTuple):
    """Whoever holds these may ask the forkservers at their other ends for a child each."""

    worker: socket.socket
    compiler: socket.socket
    program: socket.socket

    def close(self) -> None:
        """End what was forked under them."""
        for lease in self:
            lease.close()
