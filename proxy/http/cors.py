"""Calls from scripts of web pages: what a browser asks before it lets one call another origin, and what it reads after.

Invariant: a page of an origin that the settings do not name gets no permission; its browser refuses to show it answers.
Credentials of the browser (cookies) are never allowed: agents show keys.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

EXPOSED = "x-weir-call, x-weir-session, x-weir-version, x-weir-level, x-request-id, request-id, retry-after"
_REMEMBERED_S = "600"


def permission(origins: Collection[str], headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that let a page read its answer; empty where it may not, or where no page asks."""
    origin = headers.get("origin")
    if origin is None or not origins:
        return {}
    if "*" in origins:
        return {"access-control-allow-origin": "*", "access-control-expose-headers": EXPOSED}
    if origin not in origins:
        return {"vary": "origin"}
    return {"access-control-allow-origin": origin, "access-control-expose-headers": EXPOSED, "vary": "origin"}


def preflight(origins: Collection[str], method: str, headers: Mapping[str, str]) -> dict[str, str] | None:
    """The headers that answer a browser's question before a call; None where it is no such question."""
    if method != "OPTIONS" or not origins or "access-control-request-method" not in headers:
        return None
    allowed = permission(origins, headers)
    if "access-control-allow-origin" not in allowed:
        return allowed
    return allowed | {
        "access-control-allow-methods": "GET, POST, DELETE",
        "access-control-allow-headers": headers.get("access-control-request-headers", "*"),
        "access-control-max-age": _REMEMBERED_S,
    }
