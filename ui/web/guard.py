"""Who may see the page, and what a browser may do with it.

At this machine's own address nobody is asked for a key, so a request must name that address as its host: a foreign name
that resolves to it (DNS rebinding) is refused. At any other address, an access key of the store is asked for, as the
password of HTTP's Basic scheme or as a Bearer token.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import time

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.keys import access_keys, key_hash

KEYS_AGE_S = 1.0
HEADERS = {
    # No inline script, style or event handler runs, nothing is loaded from elsewhere, nobody frames the page.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # so that forms that a page sends name their origin; other sites are told nothing
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
}


def is_own_address(host: str) -> bool:
    """Whether an address reaches this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """ASGI middleware: checks host or key, and adds the headers of safety to every answer."""

    def __init__(self, app: ASGIApp, host: str, catalog: Catalog) -> None:
        self._app = app
        self._local = is_own_address(host)
        self._catalog = catalog
        self._good: set[str] = set()  # hashes of the keys that open the page
        self._read_at = -KEYS_AGE_S

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 421 or 401 where the request may not pass."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request = HTTPConnection(scope)
        refusal = self._foreign_host(request) if self._local else await self._without_key(request)
        await (refusal or self._app)(scope, receive, send_guarded)

    def _foreign_host(self, request: HTTPConnection) -> PlainTextResponse | None:
        url = request.url  # of the address that was connected to, where the Host is missing or none
        if url.netloc == request.headers.get("host") and is_own_address(url.hostname or ""):
            return None
        return PlainTextResponse(
            "this page is served at this machine's own address only: open it as http://127.0.0.1 or http://localhost, "
            "or set ui.host to an address that asks for a key\n",
            421,
        )

    async def _without_key(self, request: HTTPConnection) -> PlainTextResponse | None:
        if _shown_key(request) in await self._known():
            return None
        return PlainTextResponse(
            "this page asks for an access key (`weir key add NAME`) as the password\n",
            401,
            {"www-authenticate": 'Basic realm="Weir", charset="UTF-8"'},
        )

    async def _known(self) -> set[str]:
        if time.monotonic() - self._read_at >= KEYS_AGE_S:
            listed = await asyncio.to_thread(access_keys, self._catalog)
            self._good = {row.key_hash for row in listed if row.revoked_us is None}
            self._read_at = time.monotonic()
        return self._good


def _shown_key(request: HTTPConnection) -> str | None:
    """The hash of the key that a request shows, if any."""
    scheme, _, shown = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            shown = base64.b64decode(shown, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return None
    elif scheme.lower() != "bearer":
        return None
    return key_hash(shown)
