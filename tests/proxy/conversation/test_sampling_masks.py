"""`proxy.sampling_masks`: which calls ask the engine for its kept tokens, what is recorded, what is said without them.

smg passes an unknown field of /generate on; sglang-router drops it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support_proxy import running_proxy
from support_router import running_router
from support_scripted_engine import Script, ScriptedEngine, sampling_logprob_of
from support_way import Way, ids_of

from weir.store.maintenance.compact import compact
from weir.store.reader import connect, load_calls

IDS = ids_of("Hello.")
SAID = "answers come without output_token_sampling_logprobs"
WAYS: dict[str, dict[str, Any]] = {
    "top_k": {"top_k": 20, "top_p": 0.9},
    "streamed": {"top_k": 20, "stream": True},
    "top_p alone": {"top_p": 0.9},
    "wide": {"top_k": 5000},
    "greedy": {"top_k": 20, "temperature": 0.0},
    "first only": {"top_k": 1},
}


def ask(proxy: Any, name: str) -> None:
    body = {"model": "weir", "messages": [{"role": "user", "content": "Add."}], **WAYS[name]}
    assert proxy.post(f"/s/{name.replace(' ', '-')}/v1/chat/completions", body).status_code == 200


def test_calls_that_a_top_k_bounds_are_recorded_with_their_logprobs_among_the_kept_tokens(
    tiny_model_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = ScriptedEngine(lambda _: Script(ids=IDS)).start()
    try:
        with (
            running_router([engine.url], tmp_path, kind="smg") as router,
            running_proxy(tmp_path / "store", tiny_model_dir, router.url, sampling_masks=True) as proxy,
        ):
            for name in WAYS:
                ask(proxy, name)
            store = proxy.store
    finally:
        engine.stop()
    asked = [body.get("return_sampling_mask") for body in engine.requests]
    assert asked == [True, True, None, None, None, None]
    told = [sampling_logprob_of(token, place) for place, token in enumerate(IDS)]
    for _ in range(2):  # from the log, then from Parquet
        with connect(store) as db:
            rows = db.sql("SELECT sampling_logprobs FROM calls ORDER BY started_us").fetchall()
        assert rows == [(told,), (told,), *[(None,)] * 4]
        (call,), (other,) = load_calls(store, ["streamed", "greedy"]).values()
        assert call.sampling_logprobs is not None and call.sampling_logprobs.tolist() == told
        assert other.sampling_logprobs is None
        compact(store, seal_open=True)
    assert SAID not in caplog.text


def test_it_is_said_once_that_the_router_drops_the_question(
    open_way: Callable[..., Way], caplog: pytest.LogCaptureFixture
) -> None:
    way = open_way(sampling_masks=True)
    way.say("Hello.")
    for name in ("top_k", "streamed"):
        ask(way.proxy, name)
    assert caplog.text.count(SAID) == 1
    assert [record.sampling_logprobs for record in way.proxy.records()] == [b"", b""]


def test_nothing_is_asked_without_the_setting(way: Way) -> None:
    way.say("Hello.")
    ask(way.proxy, "top_k")
    assert "return_sampling_mask" not in way.engine.requests[-1]
