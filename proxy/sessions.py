"""Which session and group a call belongs to, by what decides, strongest first:

the path, a registered API key, the x-weir-session and x-weir-group headers, the dialect's own fields, else inference: a
call that extends a known call joins its session, anything else opens one, and sessions with the same root prompt form a
group. Invariant: identifiers that do not decide are kept as data; keys are kept as hashes only. Not here: control
routes.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import xxhash

from weir.proxy.errors import BadKey, BadRequest
from weir.proxy.stitching import Prompt
from weir.store.catalog import Catalog
from weir.store.ids import new_id
from weir.store.records import SessionSource

KEY_PREFIX = "weir-sk-"
MAX_ID_LENGTH = 200
_REMEMBERED = 16_384
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What the path of a request says."""

    session_id: str | None = None
    group_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who is calling, as far as the request itself says; None is left to inference."""

    session_id: str | None
    source: SessionSource
    group_id: str | None
    agent_ids: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The session and group of a call."""

    session_id: str
    source: SessionSource
    group_id: str


def identify(
    path: Names, key_session: Names | None, headers: Mapping[str, str], hint: str | None, agent_ids: dict[str, str]
) -> Caller:
    """Let the strongest name decide. Raises `BadRequest` for a path or header that is no name."""
    header = Names(session_id=headers.get("x-weir-session"), group_id=headers.get("x-weir-group"))
    for names, where in ((path, "the path"), (header, "a header")):
        for name in (names.session_id, names.group_id):
            if name is not None and not is_name(name):
                raise BadRequest(f"{where} names a session or group {name!r:.220}; use 1 to 200 printable characters")
    key = key_session or Names()
    dialect = Names(session_id=hint if hint is not None and is_name(hint) else None)
    candidates = (
        (path, SessionSource.PATH),
        (key, SessionSource.KEY),
        (header, SessionSource.HEADER),
        (dialect, SessionSource.DIALECT),
    )
    decided = next(((n, source) for n, source in candidates if n.session_id is not None), None)
    session_id, source = (decided[0].session_id, decided[1]) if decided else (None, SessionSource.INFERRED)
    kept = dict(agent_ids)
    for name, value in (("x-weir-session", header.session_id), ("x-weir-group", header.group_id)):
        if value is not None:
            kept[name] = value
    if key.session_id is not None and source is not SessionSource.KEY:
        kept["key"] = key.session_id
    group_id = path.group_id or (decided[0].group_id if decided else None) or header.group_id
    return Caller(session_id=session_id, source=source, group_id=group_id, agent_ids=kept)


def is_name(text: str) -> bool:
    """Whether a text can name a session or a group: it becomes part of URLs, headers and tables."""
    return 0 < len(text) <= MAX_ID_LENGTH and text.isprintable() and "/" not in text and text.strip() == text


def root_group(prompt_ids: list[int]) -> str:
    """The group of all sessions that start from these ids."""
    return "group_" + xxhash.xxh3_128_hexdigest(np.asarray(prompt_ids, dtype="<i4").tobytes())


def session_key(control_key: str, session_id: str) -> str:
    """The API key of a registered session: credential and name in one, the same each time it is asked for."""
    digest = hmac.new(control_key.encode(), session_id.encode(), hashlib.sha256).hexdigest()
    return KEY_PREFIX + digest[:40]


def key_hash(key: str) -> str:
    """What is stored of a key."""
    return hashlib.sha256(key.encode()).hexdigest()


class SessionBook:
    """Groups of the sessions of late, and the registered ones in the catalog behind them."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._groups: OrderedDict[str, str] = OrderedDict()
        self._keys: OrderedDict[str, Names] = OrderedDict()

    async def by_key(self, authorization: str | None) -> Names | None:
        """The session that a bearer key was made for; None for foreign keys. Raises `BadKey` for an unknown one."""
        key = (authorization or "").removeprefix("Bearer ").strip()
        if not key.startswith(KEY_PREFIX):
            return None
        hashed = key_hash(key)
        names = self._keys.get(hashed)
        if names is None:
            row = await asyncio.to_thread(self._catalog.find_session_by_key, hashed)
            if row is None:
                raise BadKey("the API key has the form of a session's key, but no session was registered with it")
            names = Names(session_id=row.session_id, group_id=row.group_id)
            _keep(self._keys, hashed, names)
        return names

    async def known_group(self, session_id: str) -> str | None:
        """The group of a session that was seen or registered before."""
        group_id = self._groups.get(session_id)
        if group_id is None:
            row = await asyncio.to_thread(self._catalog.find_session, session_id)
            if row is None:
                return None
            group_id = row.group_id
            _keep(self._groups, session_id, group_id)
        return group_id

    def learn(self, session_id: str, group_id: str) -> None:
        """A session was registered."""
        _keep(self._groups, session_id, group_id)

    def seen_group(self, session_id: str) -> str | None:
        """The group of a session that had a call of late, registered or not."""
        return self._groups.get(session_id)

    async def membership(self, caller: Caller, prompt: Prompt) -> Membership:
        """Session and group of a call, once its prompt is known."""
        session_id, group_id = caller.session_id, caller.group_id
        known = prompt.known
        if session_id is None and known is not None and prompt.continues:
            session_id, group_id = known.session_id, group_id or known.group_id
        if session_id is None:
            session_id = new_id("session")
        elif group_id is None:
            group_id = await self.known_group(session_id)
        group_id = group_id or root_group(prompt.ids)
        _keep(self._groups, session_id, group_id)
        return Membership(session_id=session_id, source=caller.source, group_id=group_id)


def _keep(remembered: OrderedDict[str, _T], name: str, value: _T) -> None:
    remembered[name] = value
    remembered.move_to_end(name)
    if len(remembered) > _REMEMBERED:
        remembered.popitem(last=False)
