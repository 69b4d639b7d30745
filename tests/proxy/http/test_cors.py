"""Scripts of web pages, as browsers let them call."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from support_way import Way

PAGE = "https://chat.example.org"
ASKS = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization, content-type",
}
BODY = {"model": "weir", "messages": [{"role": "user", "content": "Hi"}]}


def asked(way: Way, origin: str) -> httpx.Response:
    url = f"{way.proxy.url}/s/mine/v1/chat/completions"
    return httpx.options(url, headers={"origin": origin} | ASKS, trust_env=False)


@pytest.mark.parametrize(("origins", "allowed"), [((PAGE,), PAGE), (("*",), "*")])
def test_a_page_that_the_settings_name_may_call(
    open_way: Callable[..., Way], origins: tuple[str, ...], allowed: str
) -> None:
    way = open_way(cors_origins=origins, access_keys="required")
    way.say("Hello.")
    answer = asked(way, PAGE)
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == allowed
    assert answer.headers["access-control-allow-headers"] == "authorization, content-type"
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in answer.headers
    refused = way.proxy.post("/v1/chat/completions", BODY, headers={"origin": PAGE})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, allowed)


def test_a_stream_and_an_answer_can_be_read_by_the_page(open_way: Callable[..., Way]) -> None:
    way = open_way(cors_origins=(PAGE,))
    way.say("Hello.")
    for body in (BODY, BODY | {"stream": True}):
        answer = way.proxy.post("/v1/chat/completions", body, headers={"origin": PAGE})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, PAGE)
        assert "x-weir-call" in answer.headers["access-control-expose-headers"] and answer.headers["vary"] == "origin"


@pytest.mark.parametrize("origins", [(), ("https://other.example.org",)])
def test_another_page_gets_no_permission(open_way: Callable[..., Way], origins: tuple[str, ...]) -> None:
    way = open_way(cors_origins=origins)
    way.say("Hello.")
    assert "access-control-allow-origin" not in asked(way, PAGE).headers
    answer = way.proxy.post("/v1/chat/completions", BODY, headers={"origin": PAGE})
    assert answer.status_code == 200 and "access-control-allow-origin" not in answer.headers
