"""Earlier responses: given again as they were, deleted, and continued no more, from memory and from the store."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest
from support_way import Way


def with_call(way: Way, **fields: Any) -> Any:
    way.say("Hello.")
    return way.proxy.client().responses.create(model="weir", input="Hi", **fields)


def test_an_earlier_response_is_given_as_it_was(way: Way) -> None:
    first = with_call(way, metadata={"k": "v"})
    again = way.proxy.client().responses.retrieve(first.id)
    assert again.model_dump() == first.model_dump()


def test_a_deleted_response_is_neither_given_nor_continued_and_its_call_stays(way: Way) -> None:
    client = way.proxy.client()
    first = with_call(way)
    second = client.responses.create(model="weir", input="And?", previous_response_id=first.id)
    client.responses.delete(first.id)
    for use in (
        lambda: client.responses.retrieve(first.id),
        lambda: client.responses.delete(first.id),
        lambda: client.responses.create(model="weir", input="And?", previous_response_id=first.id),
    ):
        with pytest.raises(openai.APIStatusError, match="not found"):
            use()
    third = client.responses.create(model="weir", input="Then?", previous_response_id=second.id)
    assert third.output_text == "Hello."
    assert len(way.proxy.records()) == 3


@pytest.mark.parametrize("response_id", ["resp_none", "none", "resp_..%2F"])
def test_a_response_that_was_never_given_is_not_found(way: Way, response_id: str) -> None:
    answer = httpx.get(f"{way.proxy.url}/v1/responses/{response_id}", trust_env=False, timeout=120)
    assert answer.status_code == 404


def test_a_response_that_was_not_to_be_kept_is_not_found(way: Way) -> None:
    first = with_call(way, store=False)
    with pytest.raises(openai.NotFoundError):
        way.proxy.client().responses.retrieve(first.id)


def test_an_agent_reaches_the_responses_of_its_own_session_only(way: Way) -> None:
    way.say("Hello.")
    first = way.proxy.client("/s/mine/v1").responses.create(model="weir", input="Hi")
    with pytest.raises(openai.NotFoundError):
        way.proxy.client("/s/other/v1").responses.retrieve(first.id)
    with pytest.raises(openai.NotFoundError):
        way.proxy.client("/s/other/v1").responses.delete(first.id)
    assert way.proxy.client("/s/mine/v1").responses.retrieve(first.id).id == first.id


def test_an_agent_continues_the_responses_of_its_own_session_only(way: Way) -> None:
    way.say("Hello.")
    first = way.proxy.client("/s/mine/v1").responses.create(model="weir", input="Hi")
    again = {"model": "weir", "input": "And?", "previous_response_id": first.id}
    with pytest.raises(openai.BadRequestError) as refused:
        way.proxy.client("/s/other/v1").responses.create(**again)
    never = "resp_" + "0" * 32
    with pytest.raises(openai.BadRequestError) as unknown:
        way.proxy.client("/s/mine/v1").responses.create(**again | {"previous_response_id": never})
    for error in (refused.value, unknown.value):
        assert (error.code, error.param) == ("previous_response_not_found", "previous_response_id")
    assert refused.value.message.replace(first.id, never) == unknown.value.message
    assert way.proxy.client("/s/mine/v1").responses.create(**again).previous_response_id == first.id
    assert [record.session_id for record in way.proxy.records()] == ["mine", "mine"]


def test_agents_that_name_sessions_by_a_header_alone_continue_each_others_responses(way: Way) -> None:
    way.say("Hello.")
    client = way.proxy.client()
    first = client.responses.create(model="weir", input="Hi", extra_headers={"x-weir-session": "main"})
    second = client.responses.create(
        model="weir", input="And?", previous_response_id=first.id, extra_headers={"x-weir-session": "helper"}
    )
    assert second.output_text == "Hello."
    assert [record.session_id for record in way.proxy.records()] == ["main", "helper"]


def test_what_is_no_part_of_a_whole_response_is_refused(way: Way) -> None:
    first = with_call(way)
    answer = httpx.get(f"{way.proxy.url}/v1/responses/{first.id}?stream=true", trust_env=False, timeout=120)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unsupported_parameter")
