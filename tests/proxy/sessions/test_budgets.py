"""Budgets of registered sessions: counted in the catalog for all proxies, and ended in an orderly way."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from support_proxy import RunningProxy, running_proxy
from support_scripted_engine import Script
from support_way import Way, ids_of

from weir.proxy.sessions.budgets import Allowance, allowance
from weir.store.catalog.rows import BudgetRow
from weir.store.records.call_record import FinishReason

USER: Any = [{"role": "user", "content": "Hi"}]


def register(proxy: RunningProxy, **budget: Any) -> dict[str, Any]:
    answer = proxy.control("POST", "/weir/sessions", {"budget": budget})
    assert answer.status_code == 200
    registered: dict[str, Any] = answer.json()
    return registered


def ask(proxy: RunningProxy, registered: dict[str, Any], **options: Any) -> Any:
    client = proxy.client(api_key=registered["api_key"])
    return client.chat.completions.create(model="weir", messages=USER, **options)


def budget_of(proxy: RunningProxy, registered: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = proxy.control("GET", f"/weir/sessions/{registered['session']}").json()["budget"]
    return shown


def test_a_session_makes_as_many_calls_as_its_budget_says(way: Way) -> None:
    way.say("Hello.")
    session = register(way.proxy, max_calls=2)
    for _ in range(2):
        assert ask(way.proxy, session).choices[0].finish_reason == "stop"
    assert budget_of(way.proxy, session)["ended_by"] is None
    for _ in range(2):
        with pytest.raises(openai.BadRequestError, match="budget of this session is used up") as refused:
            ask(way.proxy, session)
        assert refused.value.code == "context_length_exceeded"
    shown = budget_of(way.proxy, session)
    assert (shown["calls"], shown["max_calls"], shown["ended_by"]) == (2, 2, "calls")
    assert len(way.proxy.records()) == 2


@pytest.mark.parametrize("stream", [False, True])
def test_the_answer_that_uses_up_the_tokens_ends_by_length_and_its_record_says_why(way: Way, stream: bool) -> None:
    way.say(Script(ids=ids_of("one two three four five six seven eight nine ten")))
    session = register(way.proxy, max_output_tokens=5)
    answer = ask(way.proxy, session, stream=stream)
    reason = [chunk.choices[0].finish_reason for chunk in answer][-1] if stream else answer.choices[0].finish_reason
    assert reason == "length"
    (record,) = way.proxy.records()
    assert (record.finish, record.finish_matched) == (FinishReason.LENGTH, "budget:output_tokens")
    assert len(record.output_ids) == 5 * 4
    with pytest.raises(openai.BadRequestError, match="5 of 5 output tokens"):
        ask(way.proxy, session)
    assert budget_of(way.proxy, session)["ended_by"] == "output_tokens"


def test_an_answer_that_the_agent_itself_bounds_is_not_called_ended_by_the_budget(way: Way) -> None:
    way.say(Script(ids=ids_of("one two three four five six seven eight nine ten")))
    session = register(way.proxy, max_output_tokens=5)
    assert ask(way.proxy, session, max_tokens=2).choices[0].finish_reason == "length"
    assert [(r.finish_matched, len(r.output_ids)) for r in way.proxy.records()] == [(None, 2 * 4)]
    assert budget_of(way.proxy, session)["output_tokens"] == 2


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_cut_where_the_sessions_seconds_end(way: Way, stream: bool) -> None:
    way.say(Script(ids=ids_of("one two three four five"), cut="wait", cut_after=2))
    session = register(way.proxy, max_seconds=0.5)
    answer = ask(way.proxy, session, stream=stream)
    reason = [chunk.choices[0].finish_reason for chunk in answer][-1] if stream else answer.choices[0].finish_reason
    assert reason == "length"
    (record,) = way.proxy.records()
    assert (record.finish, record.finish_matched) == (FinishReason.LENGTH, "budget:seconds")
    assert len(record.output_ids) == 2 * 4, "what came before the cut is given and kept"
    with pytest.raises(openai.BadRequestError, match=r"its 0\.5 seconds are over"):
        ask(way.proxy, session)
    assert budget_of(way.proxy, session)["ended_by"] == "seconds"


def test_two_proxies_over_one_store_grant_one_budget(way: Way, tiny_model_dir: Path) -> None:
    way.say("Hello.")
    with running_proxy(way.proxy.store.root, tiny_model_dir, way.router.url) as other:
        session = register(way.proxy, max_calls=3, max_output_tokens=1000)
        ask(other, session)
        ask(way.proxy, session)
        ask(other, session)
        for proxy in (way.proxy, other):
            with pytest.raises(openai.BadRequestError, match="budget of this session"):
                ask(proxy, session)
        assert budget_of(other, session)["output_tokens"] == 3 * len(ids_of("Hello."))


def test_a_call_that_no_engine_answered_does_not_count(open_way: Callable[..., Way]) -> None:
    way = open_way(refused_limit_s=0)
    way.say(Script(ids=[], status=503))
    session = register(way.proxy, max_calls=1)
    with pytest.raises(openai.InternalServerError):
        ask(way.proxy, session)
    assert budget_of(way.proxy, session)["calls"] == 0


def test_while_the_catalog_is_locked_budgets_are_503_and_what_was_used_is_charged_later(
    open_way: Callable[..., Way], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weir.store.catalog.engine.BUSY_TIMEOUT_S", 0.05)
    way = open_way()
    way.say(Script(ids=ids_of("Hello."), cut="wait", cut_after=1))
    session = register(way.proxy, max_calls=3)
    with (
        ThreadPoolExecutor(1) as pool,
        sqlite3.connect(way.proxy.store.root / "catalog.sqlite") as other,
    ):
        first = pool.submit(ask, way.proxy, session)
        way.engine.wait_waiting()
        other.execute("BEGIN IMMEDIATE")
        way.engine.go_on()
        assert first.result().choices[0].message.content == "Hello."
        with pytest.raises(openai.InternalServerError) as refused:
            ask(way.proxy, session)
        assert refused.value.status_code == 503
        assert "retry-after" in refused.value.response.headers
        other.rollback()
    way.say("Hello.")
    ask(way.proxy, session)
    shown = budget_of(way.proxy, session)
    assert (shown["calls"], shown["output_tokens"]) == (2, 2 * len(ids_of("Hello.")))


@pytest.mark.parametrize("budget", [{"max_calls": 0}, {"max_seconds": -1}, {"max_turns": 3}, {"max_calls": 2.5}, 3])
def test_a_budget_that_makes_no_sense_is_refused(way: Way, budget: Any) -> None:
    assert way.proxy.control("POST", "/weir/sessions", {"budget": budget}).status_code == 400


def test_registering_again_with_another_budget_is_refused(way: Way) -> None:
    body = {"session": "s", "group": "g", "budget": {"max_calls": 2}}
    assert way.proxy.control("POST", "/weir/sessions", body).status_code == 200
    assert way.proxy.control("POST", "/weir/sessions", body).status_code == 200
    for other in ({}, {"budget": {"max_calls": 3}}):
        answer = way.proxy.control("POST", "/weir/sessions", {"session": "s", "group": "g"} | other)
        assert answer.status_code == 409
        assert "budget" in answer.json()["error"]["message"]


def test_calls_at_the_same_time_share_the_tokens_that_are_left() -> None:
    row = BudgetRow(
        session_id="s",
        max_calls=None,
        max_output_tokens=10,
        max_seconds=60.0,
        calls=3,
        output_tokens=3,
        first_call_us=1_000_000_000,
        ended_by=None,
    )
    assert allowance(row, 3, unix_s=1010.0, monotonic_s=5.0) == Allowance(
        session_id="s", output_tokens=2, deadline=55.0
    )


def test_a_finished_session_takes_no_more_calls(way: Way, open_way: Callable[..., Way]) -> None:
    way.say("Hello.")
    session = register(way.proxy)
    ask(way.proxy, session)
    way.proxy.control("POST", f"/weir/sessions/{session['session']}/finish")
    with pytest.raises(openai.PermissionDeniedError, match="was finished") as refused:
        ask(way.proxy, session)
    assert refused.value.code == "session_finished"
    with pytest.raises(openai.PermissionDeniedError):
        way.proxy.client(f"/s/{session['session']}/v1").chat.completions.create(model="weir", messages=USER)

    allowing = open_way(finished_sessions="allow")
    session = register(allowing.proxy)
    allowing.proxy.control("POST", f"/weir/sessions/{session['session']}/finish")
    assert ask(allowing.proxy, session).choices[0].message.content == "Hello."


def test_another_proxy_learns_of_a_finish_and_of_a_late_registration(
    way: Way, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    way.say("Hello.")
    monkeypatch.setattr("weir.proxy.sessions.session_book.POLL_S", 0.0)
    with running_proxy(way.proxy.store.root, tiny_model_dir, way.router.url) as other:
        other.client("/s/late/v1").chat.completions.create(model="weir", messages=USER)
        body = {"session": "late", "group": "g", "budget": {"max_calls": 1}}
        assert way.proxy.control("POST", "/weir/sessions", body).status_code == 200
        other.client("/s/late/v1").chat.completions.create(model="weir", messages=USER)
        with pytest.raises(openai.BadRequestError, match="budget"):
            other.client("/s/late/v1").chat.completions.create(model="weir", messages=USER)
        way.proxy.control("POST", "/weir/sessions/late/finish")
        with pytest.raises(openai.PermissionDeniedError):
            other.client("/s/late/v1").chat.completions.create(model="weir", messages=USER)


def test_several_rewards_are_attached_together_or_not_at_all(way: Way) -> None:
    session = register(way.proxy)["session"]
    one = {"session": session, "name": "score", "value": 0.5, "source": "test", "idempotency_key": "k1"}
    two = one | {"value": 1.0, "idempotency_key": "k2"}

    def batch(*rewards: Any) -> httpx.Response:
        return way.proxy.control("POST", "/weir/rewards/batch", {"rewards": rewards})

    assert batch(one, two | {"session": "nobody"}).status_code == 404
    assert [r["added"] for r in batch(one, two).json()["rewards"]] == [True, True]
    assert [r["added"] for r in batch(one, two).json()["rewards"]] == [False, False]
    assert batch(one, one | {"value": 2.0}).status_code == 409
