"""The routers' worker routes: URLs, and what counts as a list of workers."""

import pytest

from weir.proxy.engines.router_routes import Worker, decode_workers, new_worker, worker_url, workers_of, workers_url


def test_urls_take_a_router_with_or_without_a_slash_and_quote_ids() -> None:
    assert workers_url("http://r:1/") == workers_url("http://r:1") == "http://r:1/workers"
    assert worker_url("http://r:1", "http://e:2") == "http://r:1/workers/http%3A%2F%2Fe%3A2"
    assert new_worker("http://e:2") == {"url": "http://e:2"}


def test_a_list_names_urls_ids_and_health() -> None:
    body = b'{"workers": [{"url": "http://a/", "id": "1", "is_healthy": false}, {"url": "http://b"}, {"id": "3"}, 4]}'
    assert decode_workers(body) == [
        Worker(url="http://a", worker_id="1", is_healthy=False),
        Worker(url="http://b", worker_id="http://b", is_healthy=True),
    ]


@pytest.mark.parametrize("listed", [None, [], {}, {"workers": None}, {"workers": "x"}])
def test_what_is_no_list_of_workers_is_none(listed: object) -> None:
    assert workers_of(listed) is None


def test_a_body_that_is_no_json_is_none() -> None:
    assert decode_workers(b"<html>") is None
