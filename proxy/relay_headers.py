"""Which headers pass: an agent's on the way up, the upstream's on the way down.

Invariant: a key of ours never goes upstream, and the upstream's key never comes from the agent where one is configured.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from weir.proxy.keys import ACCESS_PREFIX, SESSION_PREFIX

_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "content-length",
    }
)
_NOT_DOWN = _HOP | {"content-type"}
_OURS = frozenset({"host", "accept-encoding", "expect", "x-weir-session", "x-weir-group"})
CREDENTIALS = ("authorization", "x-api-key", "api-key")


def upward(headers: Mapping[str, str], *, key: str | None, routing_key: str | None) -> dict[str, str]:
    """What the upstream gets: the agent's headers, its credential replaced where a key is configured."""
    passed = {name: value for name, value in headers.items() if name not in _HOP and name not in _OURS}
    used = next((name for name in CREDENTIALS if name in passed), CREDENTIALS[0])
    refused = [name for name in CREDENTIALS if key is not None or _is_ours(passed.get(name, ""))]
    passed = {name: value for name, value in passed.items() if name not in refused}
    if key is not None:
        passed[used] = f"Bearer {key}" if used == "authorization" else key
    if routing_key is not None:
        passed["x-smg-routing-key"] = routing_key
    return passed


def _is_ours(credential: str) -> bool:
    return any(prefix in credential for prefix in (SESSION_PREFIX, ACCESS_PREFIX))


def downward(headers: Mapping[str, str]) -> dict[str, str]:
    """What the agent gets of the upstream's headers."""
    lower = ((name.lower(), value) for name, value in headers.items())
    return {name: value for name, value in lower if name not in _NOT_DOWN}
