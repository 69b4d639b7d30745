"""The state of the servers around a store: who answers, who refuses, who is silent, and who was never named."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support_http import QuietHandler, listening
from support_servers import find_free_port

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.proxies import seen_proxy
from weir.store.config import StoreConfig
from weir.ui.servers import Addresses, Servers

KEY = "the-key"
SERVED = b'{"weight_version": "7", "other": 1}'
LOADS = b"""{"loads": [{"dp_rank": 0, "num_running_reqs": 3, "num_waiting_reqs": 2},
    {"dp_rank": 1, "num_running_reqs": 2, "num_waiting_reqs": 0}]}"""


class Scripted:
    """What a server answers now."""

    def __init__(self, url: str, answers: dict[str, tuple[int, bytes]]) -> None:
        self.url = url
        self.answers = answers


@contextmanager
def answering(answers: dict[str, tuple[int, bytes]], key: str | None = None) -> Iterator[Scripted]:
    """A server with these answers by path; with a key, others are refused."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            allowed = key is None or self.headers["authorization"] == f"Bearer {key}"
            self.answer(*(answers.get(self.path, (404, b"{}")) if allowed else (401, b"{}")))

    with listening(Handler) as url:
        yield Scripted(url, answers)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    catalog = Catalog.open(StoreConfig(root=tmp_path / "store"))
    yield catalog
    catalog.close()


async def known(servers: Servers) -> dict[str, Any]:
    """The state, once all were asked."""
    for _ in range(2400):
        state = await servers.state()
        if state["asked_at"] is not None:
            return state
        await asyncio.sleep(0.05)
    raise AssertionError("the servers were not asked within two minutes")


def asked(catalog: Catalog, addresses: Addresses, key: str | None = KEY) -> dict[str, dict[str, Any]]:
    """The servers by kind, once all were asked."""

    async def ask() -> dict[str, dict[str, Any]]:
        servers = Servers(addresses, catalog, lambda: key, refresh_s=600)
        state = await known(servers)
        assert servers.revision == 1
        await servers.close()
        return {one["kind"]: one for one in state["servers"]}

    return asyncio.run(asyncio.wait_for(ask(), 120))


def test_each_server_says_what_it_does_now(catalog: Catalog) -> None:
    state = {"gate": "closed", "in_flight": 3, "weight_version": "7", "workers": [{}], "remarks": ["x"]}
    with (
        answering({"/model_info": (200, SERVED), "/v1/loads?include=core": (200, LOADS)}) as engine,
        answering({"/weir/state": (200, json.dumps(state).encode())}, KEY) as proxy,
        answering({"/health": (503, b'{"ready": false, "queue": 2}')}) as judge,
    ):
        seen_proxy(catalog, "one", url=proxy.url, writer="w1")
        seen_proxy(catalog, "another process of it", url=proxy.url, writer="w2")
        found = asked(catalog, Addresses(engines=(engine.url,), judge=judge.url))
    assert found["engine"] | {"why": ""} == {
        "kind": "engine",
        "address": engine.url,
        "state": "up",
        "why": "",
        "facts": {"weight_version": "7", "running": 5, "waiting": 2},
    }
    assert found["proxy"]["state"] == "up"
    assert found["proxy"]["facts"] == {"gate": "closed", "in_flight": 3, "weight_version": "7"}
    assert found["judge"]["state"] == "refused" and "503" in found["judge"]["why"]
    assert found["judge"]["facts"] == {"ready": False, "queue": 2}, "processes start: it says so itself"
    assert found["store"]["state"] == "up" and found["store"]["facts"]["processes_that_record"] == 2


def test_a_dead_server_a_wrong_key_and_nonsense_are_told_apart(catalog: Catalog) -> None:
    dead = f"http://127.0.0.1:{find_free_port()}"
    with (
        answering({}, KEY) as proxy,
        answering({"/health": (200, b"<h1>It works!</h1>")}) as judge,
    ):
        seen_proxy(catalog, "one", url=proxy.url, writer="w1")
        found = asked(catalog, Addresses(engines=(dead,), judge=judge.url), key="another")
    assert found["engine"]["state"] == "not reachable" and found["engine"]["why"]
    assert found["proxy"]["state"] == "refused" and "control key" in found["proxy"]["why"]
    assert found["judge"]["state"] == "refused" and "not JSON" in found["judge"]["why"]


def test_what_nobody_named_is_not_configured(catalog: Catalog) -> None:
    found = asked(catalog, Addresses())
    assert {kind: one["state"] for kind, one in found.items()} == {
        "engine": "not configured",
        "proxy": "not configured",
        "judge": "not configured",
        "store": "up",
    }


def test_a_silent_server_keeps_no_page_waiting_and_is_not_reachable(catalog: Catalog) -> None:
    silent = asyncio.Event()

    async def ask() -> tuple[Any, Any]:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await silent.wait()
            writer.close()

        async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
            address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            servers = Servers(Addresses(judge=address), catalog, lambda: None, refresh_s=600)
            first = await servers.state()
            state = await known(servers)
            silent.set()
            await servers.close()
            return first, state

    first, state = asyncio.run(asyncio.wait_for(ask(), 120))
    assert first == {"asked_at": None, "servers": []}, "it has not answered yet"
    (judge,) = [one for one in state["servers"] if one["kind"] == "judge"]
    assert judge["state"] == "not reachable" and "no answer within" in judge["why"]


def test_the_revision_counts_what_people_wait_for_and_no_numbers_that_move(catalog: Catalog) -> None:
    states = {"ready": True, "queue": 0}

    async def ask() -> list[int]:
        revisions = []
        with answering({"/health": (200, json.dumps(states).encode())}) as judge:
            servers = Servers(Addresses(judge=judge.url), catalog, lambda: None, refresh_s=0.01)
            for change in ({}, {"queue": 5}, {"ready": False}):
                judge.answers["/health"] = (200, json.dumps(states | change).encode())
                before = (await servers.state())["asked_at"]
                expected = {"ready": True, "queue": 0} | change
                while True:
                    state = await servers.state()
                    told = [one["facts"] for one in state["servers"] if one["kind"] == "judge"]
                    if told == [expected] and state["asked_at"] != before:
                        break
                    await asyncio.sleep(0.02)
                revisions.append(servers.revision)
            await servers.close()
        return revisions

    assert asyncio.run(asyncio.wait_for(ask(), 120)) == [1, 1, 2]


@pytest.mark.parametrize("loads", [b"[]", b'{"loads": 3}', b'{"loads": [{"num_running_reqs": "many"}]}', b"nothing"])
def test_an_engine_that_does_not_tell_its_load_is_shown_without(catalog: Catalog, loads: bytes) -> None:
    with answering({"/model_info": (200, SERVED), "/v1/loads?include=core": (200, loads)}) as engine:
        found = asked(catalog, Addresses(engines=(engine.url,)))
    assert found["engine"]["state"] == "up"
    assert found["engine"]["facts"] == {"weight_version": "7"}
