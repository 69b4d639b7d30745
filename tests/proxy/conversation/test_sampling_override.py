"""Sampling that the proxy imposes: what the engine gets, what the record keeps, and what the agent sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pydantic
import pytest
from support_scripted_engine import Script
from support_way import Way, ids_of
from typer.testing import CliRunner

from weir.proxy.conversation.call_request import Sampling
from weir.proxy.conversation.sampling_override import overridden
from weir.proxy.sampling_config import SamplingConfig, SamplingOverride
from weir.scripts.cli.main import app
from weir.store.maintenance.compact import compact
from weir.store.reader import connect

USER: Any = [{"role": "user", "content": "Hi"}]
ASKED = {"temperature": 0.2, "top_p": 0.9, "top_k": 20, "frequency_penalty": 0.5}
PLAIN: Any = {"set": {"temperature": 1.0, "top_p": 1.0}, "drop": ["top_k", "frequency_penalty"]}


def test_fields_are_replaced_or_dropped_and_what_was_asked_is_told() -> None:
    asked = Sampling(temperature=0.2, top_p=1.0, top_k=20, stop=("x",), extra={"min_p": 0.1, "ignore_eos": True})
    override = SamplingOverride(
        set={"temperature": 1.0, "top_p": 1.0, "repetition_penalty": 1.2}, drop=("top_k", "min_p")
    )
    used, changed = overridden(asked, override)
    assert (used.temperature, used.top_p, used.top_k, used.stop) == (1.0, 1.0, -1, ("x",))
    assert used.extra == {"ignore_eos": True, "repetition_penalty": 1.2}
    assert changed == {"temperature": 0.2, "top_k": 20, "min_p": 0.1, "repetition_penalty": None}
    assert overridden(asked, SamplingOverride()) == (asked, {})


def test_the_first_rule_that_matches_decides_and_the_section_is_for_the_rest() -> None:
    config = SamplingConfig(
        set={"temperature": 1.0},
        rules=(
            {"group": "eval-*"},
            {"session": "s-1", "set": {"temperature": 0.5}},
            {"key": "lap*", "group": "train-*", "set": {"temperature": 0.7}},
        ),
    )

    def temperature(session_id: str, group_id: str, access_key: str | None = None) -> float | None:
        return config.override(session_id=session_id, group_id=group_id, access_key=access_key).set.temperature

    assert temperature("s-1", "eval-3") is None
    assert temperature("s-1", "train-3", "laptop") == 0.5
    assert temperature("s-2", "train-3", "laptop") == 0.7
    assert temperature("s-2", "train-3") == 1.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"set": {"temperature": 3}},
        {"set": {"max_tokens": 4}},
        {"drop": ["stop"]},
        {"set": {"seed": 1}, "drop": ["seed"]},
    ],
)
def test_an_override_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(pydantic.ValidationError):
        SamplingConfig(rules=(wrong,))


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages", "completions"])
def test_the_engine_gets_the_override_and_the_agent_its_own_answer(open_way: Callable[..., Way], dialect: str) -> None:
    way = open_way(sampling=PLAIN)
    ids = ids_of("Hello.")
    way.say(Script(ids=ids, matched=ids[-1]))
    routes: dict[str, Any] = {
        "chat": ("/v1/chat/completions", {"messages": USER, **ASKED}),
        "responses": ("/v1/responses", {"input": "Hi", **ASKED}),
        "messages": (
            "/v1/messages",
            {"messages": USER, "max_tokens": 9, "temperature": 0.2, "top_p": 0.9, "top_k": 20},
        ),
        "completions": ("/v1/completions", {"prompt": "Hi", **ASKED}),
    }
    path, body = routes[dialect]
    answer = way.proxy.post(path, {"model": "weir"} | body)
    assert answer.status_code == 200 and "Hello." in answer.text
    if dialect == "responses":  # the one dialect whose answer repeats the request's sampling
        assert (answer.json()["temperature"], answer.json()["top_p"]) == (0.2, 0.9)
    sent = way.engine.requests[-1]["sampling_params"]
    assert (sent["temperature"], sent["top_p"], sent["top_k"]) == (1.0, 1.0, -1)
    assert "frequency_penalty" not in sent
    (record,) = way.proxy.records()
    assert record.asked_sampling == {name: body[name] for name in ASKED if name in body}
    assert (record.sampling["temperature"], record.sampling["top_p"], record.sampling["top_k"]) == (1.0, 1.0, -1)


def test_rules_know_sessions_groups_and_access_keys(open_way: Callable[..., Way]) -> None:
    rules = [
        {"key": "laptop", "set": {"temperature": 0.4}},
        {"session": "mine", "set": {"temperature": 0.5}},
        {"group": "train-*", "set": {"temperature": 0.6}},
    ]
    way = open_way(sampling={"rules": rules})
    way.say("Hello.")
    key = CliRunner().invoke(app, ["key", "add", "laptop", "--root", str(way.proxy.store.root)]).output.strip()
    for path, headers in (
        ("/v1/chat/completions", {"authorization": f"Bearer {key}"}),
        ("/s/mine/v1/chat/completions", {}),
        ("/g/train-1/s/a/v1/chat/completions", {}),
        ("/s/other/v1/chat/completions", {}),
    ):
        assert way.proxy.post(path, {"model": "weir", "messages": USER}, headers=headers).status_code == 200
    sent = [request["sampling_params"]["temperature"] for request in way.engine.requests]
    assert sent == [0.4, 0.5, 0.6, 1.0]
    assert "weir_sampling_overridden_total 3.0" in way.proxy.control("GET", "/metrics").text


@pytest.mark.parametrize("compacted", [False, True])
def test_both_samplings_are_columns(open_way: Callable[..., Way], compacted: bool) -> None:
    way = open_way(sampling={"rules": [{"session": "a", **PLAIN}]})
    way.say("Hello.")
    for session in "ab":
        way.proxy.post(f"/s/{session}/v1/chat/completions", {"model": "weir", "messages": USER, "temperature": 0.2})
    if compacted:
        assert compact(way.proxy.store, seal_open=True).calls == 2
    with connect(way.proxy.store) as db:
        rows = db.sql(
            "SELECT sampling->>'$.temperature', asked_sampling->>'$.temperature' FROM calls ORDER BY session_id"
        ).fetchall()
    assert rows == [("1.0", "0.2"), ("0.2", None)]
