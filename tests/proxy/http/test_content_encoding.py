"""Compressed bodies: read as what they unpack to, within the limit on bodies."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from support_way import Way

BODY = json.dumps({"model": "weir", "messages": [{"role": "user", "content": "Hi"}]}).encode()
packed = functools.partial(gzip.compress, mtime=0)
ROUTE = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("sent", "encoding"),
    [
        (packed(BODY), "gzip"),
        (packed(BODY[:20]) + packed(BODY[20:]), "X-GZIP"),
        (packed(BODY + b" " * 2**17, 0), "gzip"),
        (BODY, "identity"),
    ],
)
def test_a_packed_body_is_served_and_recorded_unpacked(way: Way, sent: bytes, encoding: str) -> None:
    way.say("Hello.")
    answer = way.proxy.post(ROUTE, sent, headers={"content-encoding": encoding})
    assert answer.status_code == 200, answer.text
    [record] = way.proxy.records()
    assert record.request.strip() == BODY


@pytest.mark.parametrize(
    ("sent", "encoding", "status", "code"),
    [
        (packed(BODY)[:-4], "gzip", 400, "invalid_encoding"),
        (packed(BODY)[:30], "gzip", 400, "invalid_encoding"),
        (BODY, "gzip", 400, "invalid_encoding"),
        (packed(BODY) + b"more", "gzip", 400, "invalid_encoding"),
        (BODY, "br", 415, "unsupported_content_encoding"),
        (packed(BODY), "gzip, gzip", 415, "unsupported_content_encoding"),
    ],
)
def test_what_cannot_be_unpacked_is_refused(way: Way, sent: bytes, encoding: str, status: int, code: str) -> None:
    answer = way.proxy.post(ROUTE, sent, headers={"content-encoding": encoding})
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize("members", [1, 40])
def test_a_body_that_unpacks_to_more_than_the_limit_is_too_large(open_way: Callable[..., Way], members: int) -> None:
    way = open_way(max_request_bytes=2**20)
    bomb = packed(bytes(2**25 // members)) * members
    assert len(bomb) < 2**17
    answer = way.proxy.post(ROUTE, bomb, headers={"content-encoding": "gzip"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")


def test_a_body_of_many_empty_members_is_refused_at_once(way: Way) -> None:
    """Each member copies what follows it: 100,000 of them (2 MB) took nine seconds of processor time."""
    answer = way.proxy.post(ROUTE, packed(b"") * 100_000, headers={"content-encoding": "gzip"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_encoding")
    assert "members" in answer.json()["error"]["message"]


def test_a_relayed_body_goes_upstream_as_what_it_is(open_way: Callable[..., Way]) -> None:
    from weir.proxy.relay.wire import upward

    passed: dict[str, Any] = upward({"content-encoding": "gzip", "x-mine": "1"}, key=None, routing_key=None)
    assert passed == {"x-mine": "1"}
