"""The edge of the proxy: what it is, what it serves, the ids that SDKs show, and a line for what it refuses."""

from __future__ import annotations

import logging
from typing import Any

import anthropic
import httpx
import openai
import pytest
from support_way import Way

USER: Any = [{"role": "user", "content": "A secret."}]


def test_the_root_says_what_this_is_and_where_to_go_on(way: Way) -> None:
    answer = httpx.get(way.proxy.url, trust_env=False, timeout=120)
    assert answer.status_code == 200
    about = answer.json()
    assert about["name"] == "weir proxy" and "/v1/messages" in about["agents"]
    for path in about["operators"]:
        assert way.proxy.control("GET", path).status_code == 200
    posted = httpx.post(way.proxy.url, json={}, trust_env=False, timeout=120)
    assert posted.status_code == 404 and "Nothing is served at /;" in posted.json()["error"]["message"]


def test_models_name_their_context_length_as_both_kinds_of_client_look_for_it(way: Way) -> None:
    limit = 4096  # of the tests' model
    listed = openai.OpenAI(base_url=f"{way.proxy.url}/v1", api_key="any").models.list().data
    assert [model.max_model_len for model in listed] == [limit] * len(listed)  # type: ignore[attr-defined]
    page = anthropic.Anthropic(base_url=way.proxy.url, api_key="any").models.list()
    assert [model.max_input_tokens for model in page.data] == [limit] * len(listed)


def test_sdks_show_the_call_as_the_requests_id(way: Way) -> None:
    way.say("Hello.")
    chat = openai.OpenAI(base_url=f"{way.proxy.url}/v1", api_key="any").chat.completions.create(
        model="weir", messages=USER
    )
    message = anthropic.Anthropic(base_url=way.proxy.url, api_key="any").messages.create(
        model="weir", messages=USER, max_tokens=9
    )
    assert [chat._request_id, message._request_id] == [record.call_id for record in way.proxy.records()]


def test_a_refusal_is_logged_by_the_names_of_field_and_reason_alone(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "weir.proxy.app"):
        body = {"model": "weir", "messages": [*USER, {"role": "A secret.", "content": "x"}]}
        assert way.proxy.post("/s/mine/v1/chat/completions", body).status_code == 400
        assert (
            way.proxy.post("/v1/chat/completions", {"model": "weir", "messages": USER, "suffix": "x"}).status_code
            == 400
        )
    assert [record.getMessage() for record in caplog.records if record.name == "weir.proxy.app"] == [
        "refused POST /s/mine/v1/chat/completions with 400: invalid_request_error messages[1].role",
        "refused POST /v1/chat/completions with 400: unsupported_parameter suffix",
    ]
