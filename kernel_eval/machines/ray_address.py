"""Whether something listens at a Ray cluster's address: Ray itself would try again for minutes."""

from __future__ import annotations

import socket

from weir.kernel_eval.errors import RayUnavailable

_CONNECT_S = 10.0


def check_reachable(address: str) -> None:
    """Try to connect. Raises `RayUnavailable`."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdigit():  # auto and local have no address
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise RayUnavailable(f"no Ray cluster at {address!r}: {error}; start one with ray start --head") from error
