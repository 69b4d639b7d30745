"""`top_logprobs` and `logit_bias` on their way to the engine, into the record and back, in each dialect with them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support_scripted_engine import Script, likeliest_of, logprob_of
from support_way import Way, ids_of, text_of

from weir.proxy.pipeline.replay import likeliest_of as recorded
from weir.store.reader import connect

USER: Any = [{"role": "user", "content": "Hi"}]
CHAT: Any = {"model": "weir", "messages": USER, "logprobs": True, "top_logprobs": 3}
SAID = "Hello there."


def expected(number: int = 3) -> list[list[dict[str, Any]]]:
    """The likeliest tokens of each token of the answer but its end, in the form of chat and Responses."""
    rows = [likeliest_of(n, i, number) for i, n in enumerate(ids_of(SAID)[:-1])]
    texts = [[(text_of([n]), logprob) for n, logprob in row] for row in rows]
    return [[{"token": t, "logprob": lp, "bytes": list(t.encode())} for t, lp in row] for row in texts]


def events(text: str) -> list[Any]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_chat_has_the_likeliest_tokens_of_each_position_and_the_record_too(
    way: Way, stream: bool, incremental: bool
) -> None:
    way.say(Script(ids=ids_of(SAID), incremental=incremental and stream))
    answer = way.proxy.post("/v1/chat/completions", CHAT | {"stream": stream})
    told = [chunk["choices"][0] for chunk in (events(answer.text) if stream else [answer.json()])]
    tokens = [token for one in told if one["logprobs"] for token in one["logprobs"]["content"]]
    assert [token["top_logprobs"] for token in tokens] == expected()
    (record,) = way.proxy.records()
    assert recorded(record) == [likeliest_of(n, i, 3) for i, n in enumerate(ids_of(SAID))]
    with connect(way.proxy.store) as db:
        rows = db.sql("SELECT len(output_ids), top_ids, top_logprobs FROM calls").fetchall()
    entries = [entry for row in recorded(record) for entry in row]
    assert rows == [(len(ids_of(SAID)), [n for n, _ in entries], [logprob for _, logprob in entries])]


def test_an_answer_in_two_pieces_has_the_likeliest_tokens_of_both(way: Way) -> None:
    way.continue_after(Script(ids=ids_of(SAID), cut="abort", cut_after=2))
    tokens = way.proxy.post("/v1/chat/completions", CHAT).json()["choices"][0]["logprobs"]["content"]
    whole = recorded(way.proxy.records()[0])
    assert len(way.engine.requests) == 2 and len(tokens) == len(ids_of(SAID)) - 1
    assert [[n for n, _ in row] for row in whole] == [[n for n, _ in likeliest_of(m, 0, 3)] for m in ids_of(SAID)]


def test_a_retry_gets_the_same_likeliest_tokens(way: Way) -> None:
    way.say(SAID)
    answers = [
        way.proxy.post("/v1/chat/completions", CHAT, headers={"x-stainless-retry-count": str(i)}).json()
        for i in range(2)
    ]
    assert answers[0] == answers[1] and len(way.engine.requests) == 1
    assert answers[1]["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == expected()[0]


def test_without_the_wish_nothing_is_asked_for_or_recorded(way: Way) -> None:
    way.say(SAID)
    token = way.proxy.post("/v1/chat/completions", CHAT | {"top_logprobs": 0}).json()
    assert token["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []
    assert not way.engine.requests[0].get("top_logprobs_num")
    with connect(way.proxy.store) as db:
        assert db.sql("SELECT top_ids, top_logprobs FROM calls").fetchall() == [(None, None)]


@pytest.mark.parametrize("stream", [False, True])
def test_responses_has_them_beside_the_included_logprobs(way: Way, stream: bool) -> None:
    way.say(SAID)
    body: Any = {"model": "weir", "input": "Hi", "top_logprobs": 3, "include": ["message.output_text.logprobs"]}
    answer = way.proxy.post("/v1/responses", body | {"stream": stream})
    response = events(answer.text)[-1]["response"] if stream else answer.json()
    told = response["output"][0]["content"][0]["logprobs"]
    assert ([token["top_logprobs"] for token in told], response["top_logprobs"]) == (expected(), 3)
    again = way.proxy.client().responses.retrieve(response["id"])
    assert again.output[0].content[0].logprobs[0].top_logprobs[2].logprob == expected()[0][2]["logprob"]  # type: ignore


def test_completions_have_them_in_the_old_form_with_the_token_itself(way: Way) -> None:
    way.say(SAID)
    answer = way.proxy.post("/v1/completions", {"model": "weir", "prompt": "Hi", "logprobs": 2}).json()
    told = answer["choices"][0]["logprobs"]["top_logprobs"]
    rows = expected(2)
    for i, (row, n) in enumerate(zip(told, ids_of(SAID)[:-1], strict=True)):
        assert row[text_of([n])] == logprob_of(n, i)
        assert set(row) == {entry["token"] for entry in rows[i]}


@pytest.mark.parametrize("route", ["chat/completions", "completions"])
def test_a_bias_reaches_the_engine_past_a_router_that_drops_it_and_the_record(way: Way, route: str) -> None:
    way.say(SAID)
    bias = {"5": -100, "007": 1.5, "9": 0}
    prompt = {"messages": USER} if route.startswith("chat") else {"prompt": "Hi"}
    assert way.proxy.post(f"/v1/{route}", {"model": "weir", "logit_bias": bias} | prompt).status_code == 200
    sent = {"5": -100.0, "7": 1.5, "9": 0.0}
    assert way.engine.requests[0]["sampling_params"]["logit_bias"] == sent
    (record,) = way.proxy.records()
    assert record.sampling["logit_bias"] == sent


def test_a_bias_that_changes_nothing_takes_the_usual_way(way: Way) -> None:
    way.say(SAID)
    body = {"model": "weir", "messages": USER, "logit_bias": {"5": 0}}
    assert way.proxy.post("/v1/chat/completions", body).status_code == 200
    assert "logit_bias" not in way.engine.requests[0]["sampling_params"]


def test_an_engine_that_leaves_the_likeliest_tokens_out_is_not_believed(way: Way) -> None:
    def script(body: dict[str, Any]) -> Script:
        del body["top_logprobs_num"]
        return Script(ids=ids_of(SAID))

    way.engine.script = script
    answer = way.proxy.post("/v1/chat/completions", CHAT)
    assert answer.status_code == 502 and "the 3 likeliest tokens were asked for" in answer.json()["error"]["message"]
