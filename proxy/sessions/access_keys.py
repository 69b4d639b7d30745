"""The keys of agents: those of registered sessions, which also name the session, and access keys.

Invariant: keys are kept and compared as hashes only, and no message or record holds one. Keys that another process
registered or revoked take effect here at once (a key seen for the first time) or after `POLL_S`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from typing import Literal

from cachetools import LRUCache

from weir.proxy.conversation.caller import Names
from weir.proxy.errors import BadKey
from weir.proxy.sessions.catalog_poll import Polled
from weir.proxy.sessions.session_book import REMEMBERED
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.keys import access_keys, key_hash

SESSION_PREFIX = "weir-sk-"
ACCESS_PREFIX = "weir-ak-"
POLL_S = 1.0


class Keys:
    """Checks the keys on agents' routes."""

    def __init__(self, catalog: Catalog, *, required: bool) -> None:
        self._catalog = catalog
        self._required = required
        self._sessions: LRUCache[str, Names] = LRUCache(REMEMBERED)
        self._good: dict[str, str] = {}  # hash → name
        self._polled = Polled(self._read_access_keys, POLL_S)

    async def admit(self, headers: Mapping[str, str]) -> tuple[Names | None, str | None]:
        """The session whose key a request shows, and the name of the access key that it shows; None without one.

        Raises `BadKey` for an unknown or missing key.
        """
        shown = keys_shown(headers)
        for key in shown:
            if key.startswith(SESSION_PREFIX):
                return await self._session_of(key), None
        for key in shown:
            if key.startswith(ACCESS_PREFIX):
                return None, await self._name_of(key)
        if self._required:
            raise BadKey(
                "this proxy asks for a key, as `Authorization: Bearer` or `x-api-key`: a registered session's, or one "
                "that `weir key add` made"
            )
        return None, None

    async def _session_of(self, key: str) -> Names:
        hashed = key_hash(key)
        names = self._sessions.get(hashed)
        if names is None:
            row = await asyncio.to_thread(self._catalog.find_session_by_key, hashed)
            if row is None:
                raise BadKey("the API key has the form of a session's key, but no session was registered with it")
            names = Names(session_id=row.session_id, group_id=row.group_id)
            self._sessions[hashed] = names
        return names

    async def _name_of(self, key: str) -> str:
        hashed = key_hash(key)
        await self._polled.fresh()
        if hashed not in self._good:
            await self._polled.fresh(now=True)
        if hashed not in self._good:
            raise BadKey("the access key is unknown or was revoked; `weir key list` lists the existing keys")
        return self._good[hashed]

    async def _read_access_keys(self) -> None:
        rows = await asyncio.to_thread(access_keys, self._catalog)
        self._good = {row.key_hash: row.name for row in rows if row.revoked_us is None}


def keys_shown(headers: Mapping[str, str]) -> list[str]:
    """The keys in a request's headers."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    shown = (bearer if scheme.lower() == "bearer" else "", headers.get("x-api-key", ""))
    return [key.strip() for key in shown if key.strip()]


def session_key(control_key: str, session_id: str) -> str:
    """The API key of a registered session: credential and name in one, derived from the control key."""
    digest = hmac.new(control_key.encode(), session_id.encode(), hashlib.sha256).hexdigest()
    return SESSION_PREFIX + digest[:40]


def new_access_key() -> str:
    """A key of 256 random bits: its hash needs no salt."""
    return ACCESS_PREFIX + secrets.token_urlsafe(32)


def are_required(setting: Literal["auto", "required", "off"], host: str) -> bool:
    """Whether agents must show a key: always, never, or where other machines can reach the proxy."""
    if setting == "auto":
        return not is_loopback(host)
    return setting == "required"


def warning_of(setting: Literal["auto", "required", "off"], host: str) -> str | None:
    """The warning at the start of a proxy that anybody may use; None where keys are required or only we reach it."""
    if setting != "off" or is_loopback(host):
        return None
    return (
        f"the proxy requires no keys (proxy.access_keys = off) and listens on {host}: every client that reaches it can "
        "use the model and write records; set it to auto, and make keys with `weir key add`"
    )


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
