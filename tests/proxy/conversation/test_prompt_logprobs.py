"""Prompt logprobs on request: what engines report, against transformers' forward pass; records, columns, refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sglang_server import needs_sglang, start_sglang
from support_proxy import running_proxy
from support_router import running_router
from support_scripted_engine import Script, prompt_logprob_of
from support_servers import start_engine
from support_way import Way, ids_of
from transformers import AutoModelForCausalLM

from weir.proxy.conversation.prompt_logprobs import HEADER, first_position
from weir.proxy.engines.capture import Capture, Chunk, Finish, MalformedChunk, Meta
from weir.proxy.errors import BadRequest
from weir.store.maintenance.compact import compact
from weir.store.reader import connect, load_calls
from weir.store.records.call_record import CallRecord, unpack_ids, unpack_logprobs

USER: Any = [{"role": "user", "content": "Add the rows of a matrix."}]


@pytest.fixture(scope="module", params=["embedded", pytest.param("sglang", marks=[needs_sglang, pytest.mark.sglang])])
def engine_url(request: Any, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("engine")
    if request.param == "sglang":
        engine = start_sglang(tiny_model_dir, folder=folder, arguments=("--weight-version", "0"))
    else:
        engine = start_engine(tiny_model_dir, folder=folder)
    yield engine.url
    engine.stop()


def expected(model: Any, record: CallRecord) -> list[float]:
    """The logprob of each prompt token but the first, at temperature 1."""
    ids = torch.from_numpy(unpack_ids(record.prompt_ids).astype(np.int64))[None]
    with torch.no_grad():
        logprobs = torch.log_softmax(model(ids).logits[0, :-1], dim=-1)
    found: list[float] = logprobs.gather(1, ids[0, 1:, None])[:, 0].tolist()
    return found


def test_prompts_are_recorded_with_the_models_own_logprobs(
    engine_url: str, tiny_model_dir: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Streamed and not, with a turn whose beginning is in the engine's cache, at another temperature."""
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    with (
        running_router([engine_url], tmp_path) as router,
        running_proxy(tmp_path / "store", tiny_model_dir, router.url) as proxy,
    ):
        for number, (stream, headers) in enumerate(((False, {}), (True, {HEADER: "0"}), (False, {HEADER: "7"}))):
            body = {"model": "weir", "messages": USER, "max_tokens": 8, "temperature": 0.6, "seed": 1, "stream": stream}
            answer = proxy.post(f"/s/s{number}/v1/chat/completions", body, headers=headers)
            assert answer.status_code == 200
        assert proxy.post("/s/far/v1/chat/completions", body, headers={HEADER: "9999"}).status_code == 200
        records = proxy.records()
        assert [record.prompt_from for record in records] == [None, 1, 7, None]
        whole = expected(model, records[1])
        assert unpack_logprobs(records[1].prompt_logprobs) == pytest.approx(whole, abs=1e-4)
        assert unpack_logprobs(records[2].prompt_logprobs) == pytest.approx(whole[6:], abs=1e-4)
        if request.node.callspec.params["engine_url"] == "embedded":  # SGLang: only in its deterministic mode
            assert records[0].output_ids == records[1].output_ids == records[2].output_ids
        for _ in range(2):  # from the log, then from Parquet
            with connect(proxy.store) as db:
                rows = db.sql("SELECT prompt_from, len(prompt_logprobs) FROM calls ORDER BY started_us").fetchall()
            assert rows == [(None, None), (1, len(whole)), (7, len(whole) - 6), (None, None)]
            (call,) = load_calls(proxy.store, ["s2"])["s2"]
            assert call.prompt_logprobs is not None and len(call.prompt_logprobs) == len(call.prompt_ids)
            assert np.isnan(call.prompt_logprobs[:7]).all()
            assert call.prompt_logprobs[7:] == pytest.approx(whole[6:], abs=1e-4)
            (plain,) = load_calls(proxy.store, ["s0"])["s0"]
            assert plain.prompt_logprobs is None
            compact(proxy.store, seal_open=True)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["chat", "completions", "responses", "messages"])
def test_any_dialect_records_what_the_engine_reports(way: Way, dialect: str, stream: bool) -> None:
    way.say("Hello.")
    bodies: dict[str, tuple[str, dict[str, Any]]] = {
        "chat": ("/v1/chat/completions", {"messages": USER}),
        "completions": ("/v1/completions", {"prompt": "Add the rows of a matrix."}),
        "responses": ("/v1/responses", {"input": "Add the rows of a matrix."}),
        "messages": ("/v1/messages", {"messages": USER, "max_tokens": 9}),
    }
    path, body = bodies[dialect]
    answer = way.proxy.post(path, {"model": "weir", "stream": stream} | body, headers={HEADER: "4"})
    assert answer.status_code == 200 and "logprob_start" not in answer.text
    assert way.engine.requests[-1]["logprob_start_len"] == 3
    (record,) = way.proxy.records()
    ids = unpack_ids(record.prompt_ids).tolist()
    assert record.prompt_from == 4
    assert unpack_logprobs(record.prompt_logprobs).tolist() == [
        prompt_logprob_of(token, place) for place, token in enumerate(ids) if place >= 4
    ]


def test_the_setting_asks_for_all_of_every_call_and_columns_have_them(open_way: Callable[..., Way]) -> None:
    way = open_way(prompt_logprobs=True)
    ids = ids_of("Hello.")
    way.say(Script(ids=ids, cut="abort", cut_after=2), Script(ids=ids[2:]))
    body = {"model": "weir", "messages": USER}
    assert way.proxy.post("/s/a/v1/chat/completions", body).status_code == 200
    assert [asked["logprob_start_len"] for asked in way.engine.requests] == [0, -1], "only of the first piece"
    (record,) = way.proxy.records()
    whole = [prompt_logprob_of(token, place) for place, token in enumerate(unpack_ids(record.prompt_ids).tolist())][1:]
    assert way.proxy.post("/s/b/v1/chat/completions", body, headers={HEADER: "9999"}).status_code == 200
    for _ in range(2):  # from the log, then from Parquet
        with connect(way.proxy.store) as db:
            rows = db.sql("SELECT prompt_from, prompt_logprobs FROM calls ORDER BY session_id").fetchall()
        assert rows == [(1, whole), (None, None)]
        calls = load_calls(way.proxy.store, ["a", "b"])
        (call,), (plain,) = calls["a"], calls["b"]
        assert call.prompt_logprobs is not None and plain.prompt_logprobs is None
        assert np.isnan(call.prompt_logprobs[0]) and call.prompt_logprobs[1:].tolist() == whole
        compact(way.proxy.store, seal_open=True)


def test_a_header_that_is_no_position_is_refused(way: Way) -> None:
    for wrong in ("-1", "all", "1.5", ""):
        with pytest.raises(BadRequest, match="must be the position"):
            first_position({HEADER: wrong}, always=False)
    body = {"model": "weir", "messages": USER}
    refused = way.proxy.post("/v1/chat/completions", body, headers={HEADER: "all"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, HEADER)


def test_they_are_taken_from_the_first_piece_and_must_be_whole() -> None:
    entries: Any = [(None, 5, None), (-1.0, 6, None), (-2.0, 7, None)]
    capture = Capture()
    capture.begin_piece("a")
    for _ in range(2):  # a cumulative stream repeats them
        meta = Meta(completion_tokens=1, output_token_logprobs=[(-0.5, 9, None)], input_token_logprobs=entries)
        capture.feed(Chunk([9], meta))
    capture.feed(Chunk([], Meta(completion_tokens=1, finish_reason=Finish("abort"))))
    capture.begin_piece("b")
    later: Any = [(None, 9, None), (-9.0, 9, None)]
    capture.feed(
        Chunk([8], Meta(completion_tokens=1, output_token_logprobs=[(-0.1, 8, None)], input_token_logprobs=later))
    )
    assert capture.prompt is not None
    assert (capture.prompt.ids, capture.prompt.logprobs) == ([6, 7], [-1.0, -2.0])
    broken = Capture()
    broken.begin_piece("a")
    with pytest.raises(MalformedChunk, match="only 1 of 2 prompt tokens"):
        broken.feed(Chunk([], Meta(completion_tokens=0, input_token_logprobs=[entries[0], entries[0], entries[2]])))
