"""`proxy.record_routed_experts`: the recorded experts are those that transformers' routers choose for the tokens."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from support_calls import read_ledger
from support_logits import reference_routes
from support_model import make_tiny_model
from support_proxy import RunningProxy, running_proxy
from support_router import running_router
from support_servers import ServerProcess, start_engine

from weir.proxy.engines.routed_experts import RoutedExperts
from weir.store.maintenance.compact import compact
from weir.store.reader import StoredCall, load_calls
from weir.store.records.call_record import Stitch, unpack_ids

MISSING = "an answer came without the experts"


@pytest.fixture(scope="module")
def mixture_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("mixture"), family="qwen3_moe")


@pytest.fixture
def engine(mixture_dir: Path, tmp_path: Path) -> Iterator[ServerProcess]:
    started = start_engine(mixture_dir, folder=tmp_path)
    yield started
    started.stop()


def ask(proxy: RunningProxy, messages: list[dict[str, str]], **more: Any) -> str:
    body = {"model": "weir", "messages": messages, "max_tokens": 20, "ignore_eos": True, **more}
    answer = proxy.post("/s/one/v1/chat/completions", body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


def metrics(proxy: RunningProxy) -> str:
    return httpx.get(proxy.url + "/metrics", trust_env=False).text


def assert_exact(call: StoredCall, folder: Path) -> None:
    assert call.routed_experts is not None
    expected = reference_routes(folder, [*call.prompt_ids.tolist(), *call.output_ids.tolist()])
    np.testing.assert_array_equal(call.routed_experts, expected.reshape(len(expected), -1))


def test_every_turn_has_its_own_experts_and_those_of_the_turns_before(
    engine: ServerProcess, mixture_dir: Path, tmp_path: Path
) -> None:
    messages = [{"role": "user", "content": "Add two vectors."}]
    with (
        running_router([engine.url], tmp_path) as router,
        running_proxy(tmp_path / "store", mixture_dir, router.url, record_routed_experts=True) as proxy,
    ):
        for _ in range(3):
            messages += [{"role": "assistant", "content": ask(proxy, messages)}, {"role": "user", "content": "Again."}]
        records = proxy.records()
        assert "weir_routed_experts_missing_total 0.0" in metrics(proxy)
        store = proxy.store
    assert [record.stitch for record in records[1:]] == [Stitch.BRIDGED] * 2
    ends = [(len(record.prompt_ids) + len(record.output_ids)) // 4 for record in records]
    assert [record.routed_from for record in records] == [0, ends[0] - 1, ends[1] - 1]
    for record in records:
        drawn = [line["token"] for line in read_ledger(engine, record.engine_rids[0])]
        assert unpack_ids(record.output_ids).tolist() == drawn
    for _ in range(2):  # from the log, then from Parquet
        (calls,) = load_calls(store, ["one"], routed_experts=True).values()
        assert len(calls) == 3
        for call in calls:
            assert_exact(call, mixture_dir)
        compact(store, seal_open=True)


def test_an_answer_that_an_abort_divided_has_the_experts_of_both_pieces(
    engine: ServerProcess, mixture_dir: Path, tmp_path: Path
) -> None:
    with running_proxy(tmp_path / "store", mixture_dir, engine.url, record_routed_experts=True) as proxy:
        engine.post("/pause_generation", {"mode": "abort"})
        engine.post("/continue_generation")
        messages = [{"role": "user", "content": "Add two vectors."}]
        asking = threading.Thread(target=ask, args=(proxy, messages), kwargs={"max_tokens": 1500})
        asking.start()
        while len(read_ledger(engine)) < 30:
            pass
        engine.post("/pause_generation", {"mode": "abort"})
        engine.post("/continue_generation")
        asking.join()
        (record,) = proxy.records()
        assert len(record.engine_rids) == 2
        (call,) = load_calls(proxy.store, ["one"], routed_experts=True)["one"]
        assert_exact(call, mixture_dir)


def test_an_engine_that_gives_none_is_said_once_and_counted(
    tiny_model_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dense = start_engine(tiny_model_dir, folder=tmp_path)
    try:
        with running_proxy(tmp_path / "store", tiny_model_dir, dense.url, record_routed_experts=True) as proxy:
            for _ in range(2):
                ask(proxy, [{"role": "user", "content": "Add."}])
            assert "weir_routed_experts_missing_total 2.0" in metrics(proxy)
            assert [record.routed_from for record in proxy.records()] == [None, None]
            (calls,) = load_calls(proxy.store, ["one"], routed_experts=True).values()
            assert [call.routed_experts for call in calls] == [None, None]
    finally:
        dense.stop()
    assert caplog.text.count(MISSING) == 1


def encoded(rows: list[list[int]]) -> str:
    return base64.b64encode(np.array(rows, "<i4").tobytes()).decode()


def test_pieces_follow_each_other_and_one_without_experts_is_made_up_for() -> None:
    routed = RoutedExperts(start=2, num_sent=4)
    routed.add(encoded([[1, 2], [3, 4], [5, 6]]), num_output=2)  # of tokens 2, 3 and 4
    assert routed.end == 5 and routed.of(2) is not None
    routed.add(None, num_output=4)  # the engine died
    assert routed.end == 5 and routed.of(4) is None
    routed.add(encoded([[7, 8], [9, 0], [1, 1]]), num_output=5)
    rows = routed.of(5)
    assert rows is not None and rows.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 0], [1, 1]]
    assert routed.anew() == RoutedExperts(2, 4)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (None, "it brought none"),
        ("!", "routed_experts is not int32 in base64"),
        (encoded([[1, 2], [3, 4]]), "4 choices came for 3 tokens"),
        (encoded([[1], [-1], [70000]]), "experts -1 to 70000 came"),
    ],
)
def test_what_does_not_fit_the_tokens_is_not_kept(given: str | None, why: str) -> None:
    routed = RoutedExperts(start=0, num_sent=3)
    routed.add(given, num_output=1)
    assert routed.of(1) is None
    assert routed.why is not None and why in routed.why
