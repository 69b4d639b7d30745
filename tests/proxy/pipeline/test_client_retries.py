"""Requests that an SDK retries: joined while in flight, answered from the record afterwards, never a second call."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support_host import Form, Said, ScriptedHost
from support_proxy import RunningProxy, running_proxy
from support_scripted_engine import Script
from support_way import Way, ids_of

from weir.store.config import StoreConfig
from weir.store.maintenance.compact import compact
from weir.store.records.call_record import FinishReason, unpack_ids

BODY: Any = {"model": "weir", "messages": [{"role": "user", "content": "Hi"}]}
TOOLS: Any = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]
PATHS = ["/v1/chat/completions", "/s/mine/v1/chat/completions"]


def post(proxy: RunningProxy, attempt: int, path: str = PATHS[0], **changes: Any) -> httpx.Response:
    """One request as the openai SDK sends it the `attempt`-th time, counted from 0."""
    return proxy.post(path, BODY | changes, headers={"x-stainless-retry-count": str(attempt)})


def leave_early(way: Way, headers: dict[str, str]) -> None:
    """Begin a streamed call and leave in the middle of its answer."""
    way.say(Script(ids=ids_of("One two three."), cut="wait", cut_after=2))
    body = BODY | {"stream": True}
    with httpx.stream("POST", way.proxy.url + PATHS[0], json=body, headers=headers, trust_env=False, timeout=60):
        way.engine.wait_waiting()


def in_background(work: Callable[[], Any]) -> Callable[[], Any]:
    """Start work in a thread; call the returned function to wait for its result."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()

    def wait() -> Any:
        thread.join(60)
        return results[0]

    return wait


def until_joined(proxy: RunningProxy) -> None:
    while (
        'weir_retries_total{how="joined"} 1' not in httpx.get(proxy.url + "/metrics", trust_env=False, timeout=120).text
    ):
        threading.Event().wait(0.01)


def said(response: httpx.Response) -> tuple[str, str, list[Any]]:
    """Text, reasoning and tool calls of a stream, assembled."""
    events = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: {")]
    deltas = [choice["delta"] for event in events for choice in json.loads(event)["choices"]]
    return (
        "".join(delta.get("content") or "" for delta in deltas),
        "".join(delta.get("reasoning_content") or "" for delta in deltas),
        [call for delta in deltas for call in delta.get("tool_calls") or ()],
    )


def text(response: httpx.Response) -> Any:
    return response.json()["choices"][0]["message"]["content"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_retry_of_a_call_in_flight_joins_it_and_gets_all_of_it(way: Way, stream: bool) -> None:
    way.say(Script(ids=ids_of("One two three."), cut="wait", cut_after=2))
    first = in_background(lambda: post(way.proxy, 0, stream=stream))
    way.engine.wait_waiting()
    second = in_background(lambda: post(way.proxy, 1, stream=stream))
    until_joined(way.proxy)
    way.engine.go_on()
    one, two = first(), second()
    assert two.content == one.content
    assert (said(two)[0] if stream else text(two)) == "One two three."
    assert two.headers["x-weir-call"] == one.headers["x-weir-call"]
    assert len(way.proxy.records()) == len(way.engine.requests) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_a_retry_of_an_answered_call_is_given_the_recorded_answer(way: Way, stream: bool, path: str) -> None:
    call = '<tool_call>\n{"name": "add", "arguments": {"b": 2}}\n</tool_call>'
    way.say("<think>\nHm.\n</think>\n\nI add.\n" + call, "Another.")
    options = {"stream": stream, "tools": TOOLS, "logprobs": True}
    first, second = (post(way.proxy, attempt, path, **options) for attempt in (0, 1))
    assert second.status_code == 200
    assert second.headers["x-weir-call"] == first.headers["x-weir-call"]
    assert second.headers["x-weir-version"] == first.headers["x-weir-version"]
    assert said(second) == said(first) if stream else second.json() == first.json()
    assert len(way.proxy.records()) == 1


def test_a_repeated_prompt_that_is_no_retry_is_a_new_call(way: Way) -> None:
    way.say("One.", "Two.")
    assert [text(post(way.proxy, 0)) for _ in range(2)] == ["One.", "Two."]
    assert len(way.proxy.records()) == 2


def test_a_retry_of_a_try_that_failed_is_a_new_call(open_way: Callable[..., Way]) -> None:
    way = open_way(lost_retries=0)
    way.say("One.", Script(ids=ids_of("x"), cut="die"), "Two.")
    path = PATHS[1]
    assert text(post(way.proxy, 0, path)) == "One."
    assert post(way.proxy, 0, path).status_code == 502, "the agent asks the same again, and the engine dies"
    assert text(post(way.proxy, 1, path)) == "Two."
    assert [record.retry_count for record in way.proxy.records()] == [0, 0, 1]


def test_of_several_agents_without_names_none_gets_another_s_answer(way: Way) -> None:
    way.say("One.", "Two.", "Three.")
    for attempt in (0, 0, 1):
        post(way.proxy, attempt)
    assert len(way.proxy.records()) == 3


def test_an_idempotency_key_makes_a_retry_without_a_count(way: Way) -> None:
    way.say("One.", "Two.")
    calls = [
        way.proxy.post(PATHS[0], BODY, headers={"idempotency-key": key}).headers["x-weir-call"]
        for key in ("a", "a", "b")
    ]
    assert calls[0] == calls[1] != calls[2]


def test_a_call_whose_client_left_goes_on_for_its_retry(open_way: Callable[..., Way]) -> None:
    way = open_way(retry_grace_s=600)
    leave_early(way, {"x-stainless-retry-count": "0"})
    retry = in_background(lambda: post(way.proxy, 1, stream=True))
    until_joined(way.proxy)
    way.engine.go_on()
    assert said(retry())[0] == "One two three."
    assert [record.finish for record in way.proxy.records()] == [FinishReason.STOP]


@pytest.mark.parametrize("headers", [{}, {"x-stainless-retry-count": "0"}])
def test_a_call_without_a_client_is_stopped_and_recorded_as_far_as_it_came(
    open_way: Callable[..., Way], headers: dict[str, str]
) -> None:
    way = open_way(retry_grace_s=0.01 if headers else 600)
    leave_early(way, headers)
    while not way.proxy.records():
        threading.Event().wait(0.01)
    way.engine.go_on()
    (record,) = way.proxy.records()
    assert record.finish is FinishReason.DISCONNECT
    got = unpack_ids(record.output_ids).tolist()
    assert got in (ids_of("One two three.")[:1], ids_of("One two three.")[:2]), "as many as had arrived"


@pytest.fixture
def restarted(way: Way, tiny_model_dir: Path, tmp_path: Path) -> Callable[[], Any]:
    """A proxy that starts on an existing store."""
    return lambda: running_proxy(tmp_path / "restarted", tiny_model_dir, way.router.url)


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_a_retry_after_a_restart_is_given_the_recorded_answer(
    way: Way, restarted: Callable[[], Any], tmp_path: Path, compacted: bool, path: str
) -> None:
    way.say("One.", "Two.")
    with restarted() as proxy:
        first = post(proxy, 0, path)
    if compacted:
        compact(StoreConfig(root=tmp_path / "restarted", segment_grace_s=0))
    with restarted() as proxy:
        second = post(proxy, 1, path)
        assert second.json() == first.json()
        assert second.headers["x-weir-call"] == first.headers["x-weir-call"]
        assert text(post(proxy, 0, path)) == "Two."


@pytest.mark.parametrize("compacted", [False, True])
def test_a_retry_that_asks_for_several_answers_is_given_all_of_them(
    way: Way, restarted: Callable[[], Any], tmp_path: Path, compacted: bool
) -> None:
    way.say("One.", "Two.", "Three.")
    with restarted() as proxy:
        first = post(proxy, 0, n=2)
        assert post(proxy, 1, n=2).json() == first.json()
    if compacted:
        compact(StoreConfig(root=tmp_path / "restarted", segment_grace_s=0))
    with restarted() as proxy:
        assert post(proxy, 1, n=2).json() == first.json()
    assert len(first.json()["choices"]) == len(way.engine.requests) == 2


@pytest.mark.parametrize("compacted", [False, True])
def test_a_response_is_gone_on_from_after_a_restart(
    way: Way, restarted: Callable[[], Any], tmp_path: Path, compacted: bool
) -> None:
    way.say("One.", "Two.", "Three.")
    previous = None
    calls = []
    for turn in range(3):
        with restarted() as proxy:
            answer = proxy.client().responses.create(model="weir", input=f"Turn {turn}", previous_response_id=previous)
            previous = answer.id
            calls += proxy.records()[-1:]
        if compacted:
            compact(StoreConfig(root=tmp_path / "restarted", segment_grace_s=0))
    assert [call.stitch for call in calls] == ["new_root", "bridged", "bridged"]
    assert calls[2].prompt_ids.startswith(calls[1].prompt_ids + calls[1].output_ids)


@pytest.fixture
def relayed(tmp_path: Path) -> Iterator[Callable[..., tuple[ScriptedHost, RunningProxy]]]:
    """`relayed(form, level)`: a host, and a proxy that relays to it; called again, another proxy on the same store."""
    with contextlib.ExitStack() as stack:
        hosts: list[ScriptedHost] = []

        def start(form: Form, level: str) -> tuple[ScriptedHost, RunningProxy]:
            if not hosts:
                hosts.append(ScriptedHost(form))
                stack.callback(hosts[0].stop)
            proxy = stack.enter_context(running_proxy(tmp_path / "store", None, hosts[0].url, level=level))
            hosts[0].forget()
            return hosts[0], proxy

        yield start


RELAYED: list[tuple[Form, str]] = [("sglang", "passthrough"), ("vllm", "passthrough"), ("openai", "text")]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("form", "level"), RELAYED)
def test_a_retry_of_a_relayed_call_in_flight_joins_it(
    relayed: Callable[..., tuple[ScriptedHost, RunningProxy]], form: Form, level: str, stream: bool
) -> None:
    host, proxy = relayed(form, level)
    host.script = lambda _: Said(text="One two three.", cut="wait", cut_after=3)
    first = in_background(lambda: post(proxy, 0, stream=stream))
    host.wait_waiting()
    second = in_background(lambda: post(proxy, 1, stream=stream))
    until_joined(proxy)
    host.go_on()
    assert second().content == first().content
    assert len(host.bodies) == len(proxy.records()) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(("form", "level"), RELAYED)
def test_a_retry_of_a_relayed_call_that_was_answered_is_given_the_recorded_answer(
    relayed: Callable[..., tuple[ScriptedHost, RunningProxy]], form: Form, level: str, restarted: bool, stream: bool
) -> None:
    host, proxy = relayed(form, level)
    first = post(proxy, 0, PATHS[1], stream=stream)
    if restarted:
        host, proxy = relayed(form, level)
    second = post(proxy, 1, PATHS[1], stream=stream)
    assert said(second) == said(first) if stream else text(second) == text(first)
    assert second.headers["x-weir-call"] == first.headers["x-weir-call"]
    assert len(proxy.records()) == 1
    assert len(host.bodies) == (0 if restarted else 1)


def test_a_retry_of_a_relayed_call_that_was_refused_is_a_new_call(
    relayed: Callable[..., tuple[ScriptedHost, RunningProxy]],
) -> None:
    host, proxy = relayed("openai", "text")
    host.script = lambda _: Said(status=500)
    assert post(proxy, 0, PATHS[1]).status_code == 500
    host.script = lambda _: Said(text="Now.")
    assert text(post(proxy, 1, PATHS[1])) == "Now."
    assert len(host.bodies) == 2


def test_a_relayed_prompt_that_is_repeated_is_a_new_call(
    relayed: Callable[..., tuple[ScriptedHost, RunningProxy]],
) -> None:
    host, proxy = relayed("sglang", "passthrough")
    for _ in range(2):
        assert post(proxy, 0).status_code == 200
    assert len(host.bodies) == len(proxy.records()) == 2
