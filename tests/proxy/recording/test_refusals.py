"""What a proxy refuses is found in its store."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from support_store_fixtures import config
from support_way import Way
from xxhash import xxh3_128_hexdigest

import weir.proxy.recording.refusals as under_test
from weir.proxy.recording.refusals import Refusals
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.refusals import REST
from weir.store.config import StoreConfig
from weir.store.reader import connect

__all__ = ["config"]

USER: Any = [{"role": "user", "content": "Hi"}]
COLUMNS = "session_id, num_requests, method, route, status, code, field"


def refusals(way: Way, num_requests: int, columns: str = COLUMNS) -> list[tuple[Any, ...]]:
    """The rows, once so many requests are in them."""
    deadline = time.monotonic() + 120
    while True:
        with connect(way.proxy.store) as db:
            [(found,)] = db.sql("SELECT coalesce(sum(num_requests), 0) FROM refusals").fetchall()
            rows = db.sql(f"SELECT {columns} FROM refusals").fetchall()
        if found >= num_requests or time.monotonic() > deadline:
            assert found == num_requests
            return sorted(rows, key=str)
        time.sleep(0.1)


def test_a_refused_request_leaves_its_reason_and_the_digest_of_its_body(way: Way) -> None:
    body = json.dumps({"model": "weir", "messages": USER, "suffix": "x"}).encode()
    answer = way.proxy.post("/s/mine/v1/chat/completions", body)
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    expected = ("mine", 400, "unsupported_parameter", "suffix", message, xxh3_128_hexdigest(body))
    assert refusals(way, 1, "session_id, status, code, field, message, body_digest") == [expected]


def test_a_client_in_a_loop_makes_one_row(way: Way) -> None:
    body = {"model": "other", "messages": USER, "metadata": {"session_id": "named"}}
    for _ in range(30):
        assert way.proxy.post("/v1/chat/completions", body).status_code == 404
    assert refusals(way, 30) == [("named", 30, "POST", "/v1/chat/completions", 404, "model_not_found", "model")]


@pytest.mark.parametrize(
    ("path", "body", "headers", "session_id"),
    [
        ("/v1/messages", {"metadata": {"user_id": "u1"}}, {}, "u1"),
        ("/v1/responses", {"user": "u"}, {}, "u"),
        ("/v1/completions", {"metadata": {"session_id": "m"}}, {"x-weir-session": "h"}, "h"),
        ("/v1/completions", {"user": 3}, {}, None),
        ("/v1/completions", [], {}, None),
        ("/s/a%0Ab/v1/completions", {}, {}, None),
    ],
)
def test_the_session_is_the_one_that_the_request_names(
    way: Way, path: str, body: Any, headers: dict[str, str], session_id: str | None
) -> None:
    assert way.proxy.post(path, body, headers=headers).status_code == 400
    assert refusals(way, 1, "session_id") == [(session_id,)]


def test_more_different_refusals_than_a_process_keeps_are_counted_together(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "PENDING", 3)
    catalog = Catalog.open(config)

    async def refuse() -> None:
        refusals = Refusals(catalog)
        for number in range(10):
            refusals.note(replace(REST, route=f"/{number}", code="not_found"))
        refusals.note(replace(REST, route="/0", code="not_found"))
        await refusals.close()

    asyncio.run(refuse())
    catalog.close()
    with connect(config) as db:
        rows = db.sql("SELECT route, code, num_requests FROM refusals ORDER BY route").fetchall()
    assert rows == [("", "left_out", 7), ("/0", "not_found", 2), ("/1", "not_found", 1), ("/2", "not_found", 1)]


def test_refusals_that_the_catalog_does_not_take_are_written_when_it_does(
    config: StoreConfig, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = Catalog.open(config)
    with catalog.writing().begin() as connection:
        connection.execute(sa.text("ALTER TABLE refusals RENAME TO elsewhere"))

    async def refuse() -> None:
        refusals = Refusals(catalog)
        refusals.note(replace(REST, code="not_found"))
        await refusals.close()
        assert "could not be noted" in caplog.text
        with catalog.writing().begin() as connection:
            connection.execute(sa.text("ALTER TABLE elsewhere RENAME TO refusals"))
        refusals.note(replace(REST, code="not_found"))
        await refusals.close()

    asyncio.run(refuse())
    catalog.close()
    with connect(config) as db:
        assert db.sql("SELECT code, num_requests FROM refusals").fetchall() == [("not_found", 2)]


def test_of_a_client_without_a_key_nothing_is_kept_that_it_chooses(open_way: Callable[..., Way]) -> None:
    way = open_way(access_keys="required")
    for number in range(5):
        assert way.proxy.post(f"/s/mine{number}/v1/anything{number}", {"user": "u"}).status_code == 401
    assert refusals(way, 5, "session_id, route, code, num_requests") == [(None, "", "invalid_api_key", 5)]


def test_what_no_engine_answers_is_no_refusal(way: Way) -> None:
    way.say("Hello.")
    assert way.proxy.post("/v1/chat/completions", {"model": "weir", "messages": USER}).status_code == 200
    assert way.proxy.post("/nowhere", {}).status_code == 404
    assert refusals(way, 1, "route, code") == [("/nowhere", "not_found")]
