"""The servers around a store as they are now: engines, proxies with their gates, the judge, and the store itself.

Invariant: a page never waits for a server that does not answer. All are asked at once, within `ASK_S`, at most every
`refresh_s` and only while somebody looks; a page shows what was learned last. `revision` counts changes of what people
wait for (who answers, gates, versions, failures), not of numbers that move with every call.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.files import Totals, file_totals
from weir.store.catalog.proxies import is_live, proxies
from weir.store.errors import StoreError

ASK_S = 1.5
FIRST_S = 0.25  # how long the first page waits for the first answers
OF_PROXY = (
    *("gate", "weight_version", "level", "in_flight", "waiting", "held", "record_queue", "records_lost"),
    *("record_failure", "draining", "engines_out"),
)
OF_JUDGE = ("ready", "mode", "target", "sandbox", "slots", "running", "queue")
OF_STORE = ("parquet_files", "parquet_bytes", "parquet_calls")
OF_ENGINE = ("weight_version", "model_path")
MOVING = frozenset({"in_flight", "waiting", "held", "record_queue", "running", "queue", *OF_STORE})

Facts = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where servers are by the settings; proxies are also found in the catalog."""

    engines: tuple[str, ...] = ()
    judge: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server: `state` is up, not reachable, refused, or not configured; `why` says more where it is not up."""

    kind: str
    address: str
    state: str
    why: str = ""
    facts: Facts = field(default_factory=dict)


class _RankLoad(msgspec.Struct):
    """What SGLang's /v1/loads says of one rank; it says more."""

    num_running_reqs: int
    num_waiting_reqs: int


class Servers:
    """Asks the servers, and remembers what they said."""

    def __init__(
        self, addresses: Addresses, catalog: Catalog, control_key: Callable[[], str | None], refresh_s: float
    ) -> None:
        self._addresses = addresses
        self._catalog = catalog
        self._control_key = control_key
        self._refresh_s = refresh_s
        self._known: list[Server] = []
        self.asked_at: float | None = None  # of what is known, in Unix seconds
        self._asking: asyncio.Task[None] | None = None
        self.revision = 0

    async def state(self) -> dict[str, Any]:
        """What is known: `asked_at` in Unix seconds, None before the first answers, and `servers`."""
        self.ask_if_old()
        if self.asked_at is None and self._asking is not None:
            await asyncio.wait([self._asking], timeout=FIRST_S)
        return {"asked_at": self.asked_at, "servers": [msgspec.to_builtins(server) for server in self._known]}

    def ask_if_old(self) -> None:
        """Ask again in the background, if the last answers are old and nobody asks now."""
        is_old = self.asked_at is None or time.time() - self.asked_at >= self._refresh_s
        if is_old and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(self._ask_all())

    async def close(self) -> None:
        """Stop asking."""
        if self._asking is not None:
            self._asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._asking

    async def _ask_all(self) -> None:
        store, urls = await asyncio.to_thread(_of_catalog, self._catalog)
        async with httpx.AsyncClient(trust_env=False, timeout=ASK_S) as http:
            found = await asyncio.gather(
                *(self._ask_engine(http, url) for url in self._addresses.engines),
                *(self._ask(http, "proxy", url, "/weir/state", OF_PROXY, key=True) for url in urls),
                *(self._ask(http, "judge", url, "/health", OF_JUDGE) for url in filter(None, [self._addresses.judge])),
            )
        known = [*found, *_missing(found), store]
        if _lasting(known) != _lasting(self._known):
            self.revision += 1
        self._known, self.asked_at = known, time.time()

    async def _ask_engine(self, http: httpx.AsyncClient, url: str) -> Server:
        """What an engine serves, and how much it has to do, summed over its ranks, where it says that."""
        served, loaded = await asyncio.gather(
            self._ask(http, "engine", url, "/model_info", OF_ENGINE),
            self._ask(http, "engine", url, "/v1/loads?include=core", ("loads",)),
        )
        try:
            ranks = msgspec.convert(loaded.facts["loads"] if loaded.state == "up" else [], list[_RankLoad])
        except (KeyError, msgspec.ValidationError):
            ranks = []
        if not ranks:
            return served
        load = {
            "running": sum(rank.num_running_reqs for rank in ranks),
            "waiting": sum(rank.num_waiting_reqs for rank in ranks),
        }
        return dataclasses.replace(served, facts=served.facts | load)

    async def _ask(
        self, http: httpx.AsyncClient, kind: str, url: str, path: str, names: Iterable[str], *, key: bool = False
    ) -> Server:
        try:
            secret = self._control_key() if key else None
            headers = {} if secret is None else {"authorization": f"Bearer {secret}"}
            async with asyncio.timeout(ASK_S):
                answer = await http.get(url.rstrip("/") + path, headers=headers)
            told = msgspec.json.decode(answer.content) if answer.content else {}
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            why = (
                f"no answer within {ASK_S:g} s"
                if isinstance(error, TimeoutError | httpx.TimeoutException)
                else str(error)
            )
            return Server(kind=kind, address=url, state="not reachable", why=why)
        except msgspec.DecodeError:
            return Server(kind=kind, address=url, state="refused", why=f"{path} answered something that is not JSON")
        facts = {name: told[name] for name in names if isinstance(told, dict) and told.get(name) not in (None, [], "")}
        if answer.status_code == 200:
            return Server(kind=kind, address=url, state="up", facts=facts)
        why = f"{path} answered {answer.status_code}"
        if key and answer.status_code == 401:
            why += ": the control key that this page knows is not the proxy's; set proxy.control_key for both"
        return Server(kind=kind, address=url, state="refused", why=why, facts=facts)


def _of_catalog(catalog: Catalog) -> tuple[Server, list[str]]:
    """The store, and the proxies that recorded into it lately, each once."""
    try:
        totals: Totals = file_totals(catalog)
        rows = proxies(catalog)
    except StoreError as error:
        return Server(kind="store", address="the catalog", state="not reachable", why=str(error)), []
    facts = dict(zip(OF_STORE, (totals.files, totals.num_bytes, totals.num_calls), strict=True))
    live = [row for row in rows if is_live(row)]
    failures = sorted({row.failure for row in live if row.failure})
    store = Server(
        kind="store",
        address="the catalog",
        state="up",
        why="; ".join(failures),
        facts=facts | {"processes_that_record": len(live)},
    )
    return store, list(dict.fromkeys(row.url for row in rows))


def _missing(found: Iterable[Server]) -> list[Server]:
    """A line for each kind of server that nobody named."""
    why = {
        "engine": "no engine is named by the settings: engine.count, engine.urls or trainer.engine_urls",
        "proxy": "no proxy has recorded into this store in the last ten minutes",
        "judge": "no judge is named by the settings: kernel_eval.host and kernel_eval.port, or kernel_eval.url",
    }
    there = {server.kind for server in found}
    return [
        Server(kind=kind, address="", state="not configured", why=text)
        for kind, text in why.items()
        if kind not in there
    ]


def _lasting(servers: Iterable[Server]) -> list[tuple[str, str, str, str, Mapping[str, Any]]]:
    return [
        (one.kind, one.address, one.state, one.why, {k: v for k, v in one.facts.items() if k not in MOVING})
        for one in servers
    ]
