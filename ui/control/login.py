"""Logins with the control key: a cookie for the browser, and a secret that signs what a login may send.

Invariants: the key is compared in constant time and kept nowhere else; a login ends after `LOGIN_S` or with its server;
a form is accepted only under the signature that this server made for that login and for just these values, so that
nothing is done that was not shown before, and no other site can send anything.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from weir.ui.errors import BadQuestion, Forbidden, Unavailable

LOGIN_S = 12 * 3600.0
NAME_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class ControlKey:
    """The proxy's control key: the configured one, else the one in the proxy's file."""

    configured: str | None
    file: Path

    def require(self, given: str) -> None:
        """Raise Forbidden for another key, and Unavailable where there is none."""
        if not hmac.compare_digest(given.strip().encode(), self._read().encode()):
            raise Forbidden(f"this is not the control key; it is proxy.control_key of weir.toml, or in {self.file}")

    def known(self) -> str | None:
        """The key, None where there is none."""
        try:
            return self._read()
        except Unavailable:
            return None

    def _read(self) -> str:
        if self.configured is not None:
            return self.configured
        try:
            key = self.file.read_text().strip()
        except OSError as error:
            raise Unavailable(
                f"there is no control key: proxy.control_key is not set, and {self.file} cannot be read "
                f"({error.strerror}); the proxy makes it at its first start"
            ) from error
        if not key:
            raise Unavailable(f"there is no control key: {self.file} is empty; remove it and start the proxy again")
        return key


@dataclass(frozen=True, slots=True)
class Login:
    """A person who gave the control key."""

    person: str
    ends_at: float  # by time.monotonic
    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def sign(self, path: str, values: Mapping[str, str]) -> str:
        """The signature of a form: that these values are sent to this path by this login."""
        return hmac.new(self._secret, msgspec.json.encode([path, sorted(values.items())]), hashlib.sha256).hexdigest()

    def check(self, path: str, values: Mapping[str, str], signature: str) -> None:
        """Raise Forbidden for a form that this login was not shown."""
        if not hmac.compare_digest(self.sign(path, values).encode(), signature.encode()):
            raise Forbidden("this form is not one that the page showed to this login: open it again, and confirm there")


class Logins:
    """All logins of one page server, by the hashes of their cookies."""

    def __init__(self, key: ControlKey) -> None:
        self._key = key
        self._logins: dict[str, Login] = {}

    def open(self, key: str, person: str) -> str:
        """The cookie of a new login. Raises Forbidden, Unavailable, and BadQuestion for a name that cannot be kept."""
        self._key.require(key)
        name = " ".join(person.split())
        if len(name) > NAME_CHARACTERS or not name.isprintable():
            raise BadQuestion(f"a name has at most {NAME_CHARACTERS} printable characters")
        now = time.monotonic()
        self._logins = {cookie: login for cookie, login in self._logins.items() if login.ends_at > now}
        cookie = secrets.token_urlsafe(32)
        self._logins[_hash(cookie)] = Login(name, now + LOGIN_S)
        return cookie

    def find(self, cookie: str) -> Login | None:
        """The login of a cookie, unless it has ended."""
        login = self._logins.get(_hash(cookie))
        return login if login is not None and login.ends_at > time.monotonic() else None

    def close(self, cookie: str) -> None:
        """End a login; may be called twice."""
        self._logins.pop(_hash(cookie), None)


def _hash(cookie: str) -> str:
    return hashlib.sha256(cookie.encode()).hexdigest()
