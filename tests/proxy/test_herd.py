"""Calls that were held and go at once: an upstream that accepts few connections, that dies, or that restarts meanwhile.

Invariants: every call is answered, and none is generated twice; the rest wait with keepalives.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support_host import ScriptedHost
from support_narrow_listener import narrow_listener
from support_proxy import CONTROL_KEY, RunningProxy, running_proxy
from support_router import running_router
from support_scripted_engine import Script, ScriptedEngine
from support_servers import find_free_port
from support_way import Way, ids_of

from weir.proxy.sessions.access_keys import new_access_key
from weir.store.catalog.keys import add_access_key
from weir.store.records.call_record import FinishReason

HERD = 1000
ANSWER = "Hello."
Released = Callable[[], Coroutine[Any, Any, None]]


async def herd(proxy: RunningProxy, number: int, meanwhile: Released | None = None) -> Counter[str]:
    """Hold `number` calls, streamed and not, and release them; what they were answered with."""
    limits = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(
        proxy.url, connector=aiohttp.TCPConnector(limit=0), timeout=limits, trust_env=False
    ) as http:
        control = {"authorization": f"Bearer {CONTROL_KEY}"}

        async def post(path: str) -> None:
            async with http.post(path, json={}, headers=control) as response:
                assert response.status == 200

        async def call(number: int) -> str:
            messages = [{"role": "user", "content": f"Hi {number}"}]
            body = {"model": "weir", "messages": messages, "stream": number % 2 == 0}
            async with http.post("/v1/chat/completions", json=body) as response:
                text = await response.text()
            complete = '"finish_reason":"stop"' in text.replace(" ", "")
            return "answered" if response.status == 200 and complete else f"{response.status} {text[-300:]}"

        await post("/weir/pause")
        calls = [asyncio.create_task(call(each)) for each in range(number)]
        await asyncio.to_thread(wait_held, proxy, number)
        await post("/weir/resume")
        if meanwhile is not None:
            await meanwhile()
        return Counter(await asyncio.gather(*calls))


def wait_held(proxy: RunningProxy, number: int) -> None:
    while proxy.proxy.departures.held < number:
        threading.Event().wait(0.02)


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    running = ScriptedEngine(lambda _: Script(ids=ids_of(ANSWER))).start()
    yield running
    running.stop()


def test_a_router_that_accepts_connections_slowly_answers_a_thousand_held_calls(
    engine: ScriptedEngine, tiny_model_dir: Path, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"connect_timeout_s": 0.5, "refused_limit_s": 30.0}
    with (
        running_router([engine.url], tmp_path) as router,
        narrow_listener(router.url, 0.02) as url,
        running_proxy(tmp_path / "store", tiny_model_dir, url, **settings) as proxy,
    ):
        assert asyncio.run(herd(proxy, HERD)) == {"answered": HERD}
        departures = proxy.proxy.departures
        assert departures.num_refused > 0, "the router accepted everything, so this tests nothing"
        assert departures.limit.calls < 200
        records = proxy.records()
    assert [record.finish for record in records] == [FinishReason.STOP] * HERD
    assert len(engine.requests) == HERD == len({body["rid"] for body in engine.requests})


def test_a_host_that_accepts_connections_slowly_answers_relayed_calls_that_were_held(tmp_path: Path) -> None:
    host = ScriptedHost("sglang")
    settings: dict[str, Any] = {"level": "passthrough", "connect_timeout_s": 0.5, "refused_limit_s": 30.0}
    with (
        narrow_listener(host.url, 0.02) as url,
        running_proxy(tmp_path / "store", None, url, **settings) as proxy,
    ):
        host.forget()
        assert asyncio.run(herd(proxy, 300)) == {"answered": 300}
        assert proxy.proxy.departures.num_refused > 0
        assert len(proxy.records()) == 300
    assert len(host.bodies) == 300
    host.stop()


def test_an_engine_that_dies_under_the_herd_costs_a_call_one_attempt(tiny_model_dir: Path, tmp_path: Path) -> None:
    dying, staying = (ScriptedEngine(lambda _: Script(ids=ids_of(ANSWER))).start() for _ in range(2))

    async def kill() -> None:
        await asyncio.to_thread(dying.wait_arrived, 20)
        await asyncio.to_thread(dying.kill)

    with (
        running_router([dying.url, staying.url], tmp_path) as router,
        running_proxy(tmp_path / "store", tiny_model_dir, router.url, lost_retries=1, retry_backoff_s=0.0) as proxy,
    ):
        assert asyncio.run(herd(proxy, 600, kill)) == {"answered": 600}
        assert proxy.control("GET", "/weir/state").json()["refused_by_upstream"] > 0
        assert len(proxy.records()) == 600
    for engine in (dying, staying):
        engine.stop()


def test_a_router_that_restarts_under_the_herd_costs_no_call(
    engine: ScriptedEngine, tiny_model_dir: Path, tmp_path: Path
) -> None:
    port = find_free_port()
    stopped, restarted = threading.Event(), threading.Event()
    engine.script = lambda _: Script(ids=ids_of(ANSWER), cut=None if stopped.is_set() else "wait")

    def restart() -> None:
        engine.wait_waiting(20)
        router.process.kill()  # asked to end, it waits for the calls that the engine holds
        first.__exit__(None, None, None)
        stopped.set()
        engine.go_on()
        with running_router([engine.url], tmp_path, port=port):
            restarted.set()
            done.wait(120)

    first, done = running_router([engine.url], tmp_path, port=port), threading.Event()
    router = first.__enter__()
    with running_proxy(tmp_path / "store", tiny_model_dir, router.url) as proxy, ThreadPoolExecutor(1) as pool:
        restarting = pool.submit(restart)
        try:
            assert asyncio.run(herd(proxy, 600)) == {"answered": 600}
            assert restarted.wait(60)
            state = proxy.control("GET", "/weir/state").json()
        finally:
            done.set()
        restarting.result(60)
    assert state["refused_by_upstream"] > 0
    assert (state["in_flight"], state["waiting"]) == (0, 0)


def test_a_key_with_few_calls_is_not_kept_waiting_by_one_with_many(open_way: Callable[..., Way]) -> None:
    way = open_way(max_concurrent=1)
    way.say(ANSWER)
    keys = {name: new_access_key() for name in ("many", "few")}
    for name, key in keys.items():
        add_access_key(way.proxy.proxy.catalog, name, key)
    asked = ["many"] * 40 + ["few"] * 5
    departures = way.proxy.proxy.departures
    way.proxy.control("POST", "/weir/pause")
    with ThreadPoolExecutor(len(asked)) as pool:
        for number, name in enumerate(asked, 1):
            pool.submit(call_as, way, keys[name], name)
            while departures.held < number:
                threading.Event().wait(0.005)
        way.proxy.control("POST", "/weir/resume")
    finished = sorted(way.proxy.records(), key=lambda record: record.finished_us)
    order = [json.loads(record.request)["messages"][0]["content"] for record in finished]
    assert order[:10].count("few") == 5
    assert Counter(order) == Counter(asked)


def call_as(way: Way, key: str, text: str) -> None:
    body = {"model": "weir", "messages": [{"role": "user", "content": text}]}
    assert way.proxy.post("/v1/chat/completions", body, headers={"x-api-key": key}).status_code == 200
