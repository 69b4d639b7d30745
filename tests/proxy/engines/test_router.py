"""Calls through both routers, and with the embedded engine's own tokens behind them."""

import concurrent.futures
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support_proxy import running_proxy
from support_router import running_router
from support_scripted_engine import Script, ScriptedEngine
from support_servers import EngineFactory
from support_way import Way, ids_of

from weir.proxy import server
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.devices.switches import AsleepEngine, asleep_engines
from weir.store.errors import StoreUnavailable
from weir.store.records.call_record import VersionSpan, unpack_ids

USER: Any = [{"role": "user", "content": "Hi"}]
ANSWER = "Hello there, you."


@pytest.fixture(params=["sglang-router", "smg"])
def routed(request: pytest.FixtureRequest, tiny_model_dir: Path, tmp_path: Path) -> Iterator[Way]:
    engine = ScriptedEngine(lambda _: Script(ids=ids_of(ANSWER))).start()
    with (
        running_router([engine.url], tmp_path, kind=request.param) as router,
        running_proxy(tmp_path / "store", tiny_model_dir, router.url) as proxy,
    ):
        yield Way(engine=engine, router=router, proxy=proxy)
    engine.stop()


@pytest.mark.parametrize("stream", [False, True])
def test_exact_ids_pass_both_ways(routed: Way, stream: bool) -> None:
    created: Any = routed.proxy.client().chat.completions.create(model="weir", messages=USER, stream=stream)
    text = "".join(c.choices[0].delta.content or "" for c in created) if stream else created.choices[0].message.content
    assert text == ANSWER
    (record,) = routed.proxy.records()
    assert routed.engine.requests[0]["input_ids"] == unpack_ids(record.prompt_ids).tolist()
    assert unpack_ids(record.output_ids).tolist() == ids_of(ANSWER)


@pytest.mark.parametrize("stream", [False, True])
def test_a_dead_engine_is_noticed_and_the_answer_completed(routed: Way, stream: bool) -> None:
    ids = ids_of(ANSWER)
    routed.continue_after(Script(ids=ids, version="1", cut="die", cut_after=3))
    created: Any = routed.proxy.client().chat.completions.create(model="weir", messages=USER, stream=stream)
    text = "".join(c.choices[0].delta.content or "" for c in created) if stream else created.choices[0].message.content
    assert text == ANSWER
    (record,) = routed.proxy.records()
    cut = record.spans[0].end if record.spans[0].label == "1" else 0
    assert unpack_ids(record.output_ids).tolist() == ids
    assert cut in (range(4) if stream else [0])
    assert record.spans[-1] == VersionSpan(cut, len(ids), "2")


def test_streams_on_kept_connections_do_not_stall(routed: Way) -> None:
    """A delayed acknowledgement would cost each of them 40 ms; a slow machine makes plain answers slow too."""
    routed.say(Script(ids=ids_of(ANSWER), tokens_per_chunk=4))
    client = routed.proxy.client()
    took: dict[bool, list[float]] = {False: [], True: []}
    for stream in [False, True] * 12:
        started = time.perf_counter()
        created: Any = client.chat.completions.create(model="weir", messages=USER, stream=stream)
        assert not stream or list(created)
        took[stream].append(time.perf_counter() - started)
    plain, streamed = (statistics.median(took[stream]) for stream in (False, True))
    assert streamed - plain < 0.035


def test_weights_are_updated_under_calls_of_the_embedded_engine(
    engine_server: EngineFactory, tiny_model_dir: Path, tmp_path: Path
) -> None:
    """Pause, abort, update, continue, resume, in the order in which a publisher does it."""
    engine = engine_server(tiny_model_dir, "--weight-version", "1")
    with (
        running_router([engine.url], tmp_path) as router,
        running_proxy(tmp_path / "store", tiny_model_dir, router.url) as proxy,
        concurrent.futures.ThreadPoolExecutor(4) as pool,
    ):
        client = proxy.client()

        def ask(stream: bool) -> None:
            created: Any = client.chat.completions.create(
                model="weir", messages=USER, stream=stream, max_tokens=400, extra_body={"ignore_eos": True}
            )
            if stream:
                assert list(created)

        calls = [pool.submit(ask, stream) for stream in (True, False, True, False)]
        while proxy.control("GET", "/weir/state").json()["in_flight"] < 4:
            time.sleep(0.01)
        for version in ("2", "3"):
            proxy.control("POST", "/weir/pause")
            engine.post("/pause_generation", {"mode": "abort"})
            update = {"model_path": str(tiny_model_dir), "weight_version": version, "flush_cache": True}
            assert engine.post("/update_weights_from_disk", update)["success"] is True
            engine.post("/continue_generation")
            proxy.control("POST", "/weir/resume", {"weight_version": version})
        for call in calls:
            call.result(120)
        records = proxy.records()
    assert len(records) == 4
    for record in records:
        assert len(record.output_ids) == 4 * 400
        assert record.spans[-1].label == "3"
        assert [span.label for span in record.spans] == sorted({span.label for span in record.spans})


@pytest.mark.parametrize("stream", [False, True])
def test_calls_go_on_after_a_publisher_died_between_pause_and_continue(
    engine_server: EngineFactory, tiny_model_dir: Path, tmp_path: Path, stream: bool
) -> None:
    engine = engine_server(tiny_model_dir)
    with (
        running_router([engine.url], tmp_path) as router,
        running_proxy(tmp_path / "store", tiny_model_dir, router.url, gate_limit_s=0.3) as proxy,
    ):
        proxy.control("POST", "/weir/pause")
        engine.post("/pause_generation", {"mode": "abort"})
        client = proxy.client(timeout=120.0)
        answer: Any = client.chat.completions.create(model="weir", messages=USER, max_tokens=4, stream=stream)
        assert list(answer)
        assert len(proxy.records()) == 1


def test_paused_engines_continue_once_the_catalog_answers_again(
    engine_server: EngineFactory, tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    def away_at_first(catalog: Catalog) -> dict[str, AsleepEngine]:
        tries.append("asked")
        if len(tries) < 3:
            raise StoreUnavailable("the catalog does not answer")
        return asleep_engines(catalog)

    monkeypatch.setattr(server, "asleep_engines", away_at_first)
    monkeypatch.setattr(server, "CONTINUE_RETRY_S", 0.01)
    engine = engine_server(tiny_model_dir)
    with (
        running_router([engine.url], tmp_path) as router,
        running_proxy(tmp_path / "store", tiny_model_dir, router.url, gate_limit_s=0.3) as proxy,
    ):
        proxy.control("POST", "/weir/pause")
        engine.post("/pause_generation", {"mode": "abort"})
        answer: Any = proxy.client(timeout=60.0).chat.completions.create(model="weir", messages=USER, max_tokens=4)
        assert answer.choices
    assert len(tries) >= 3
