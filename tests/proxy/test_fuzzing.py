"""Fuzzing: generated requests to the control routes, odd paths, headers and methods cause no 500."""

import json
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support_proxy import CONTROL_KEY, RunningProxy, running_proxy
from support_router import Router
from support_scripted_engine import Script, ScriptedEngine
from support_way import ids_of

from weir.proxy.app import split_path
from weir.proxy.conversation.caller import is_name

FEW = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
BODY = json.dumps({"model": "weir", "messages": [{"role": "user", "content": "Hi"}]}).encode()
ERROR_FIELDS = {"message", "type", "param", "code"}
OPERATIONS = [
    ("POST", "/weir/sessions"),
    ("GET", "/weir/sessions/{session_id}"),
    ("POST", "/weir/sessions/{session_id}/finish"),
    ("POST", "/weir/rewards"),
    ("POST", "/weir/rewards/batch"),
    ("GET", "/weir/state"),
    ("POST", "/weir/resume"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
]


@pytest.fixture(scope="module")
def proxy(
    scripted: tuple[ScriptedEngine, Router], tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningProxy]:
    """One proxy for all examples."""
    engine, router = scripted
    engine.script = lambda _: Script(ids=ids_of("Hello."))
    with running_proxy(tmp_path_factory.mktemp("fuzz"), tiny_model_dir, router.url) as running:
        yield running


def refuse_a_bad_answer(answer: Any) -> None:
    """Assert that an answer is no 500, and that an error has the usual form."""
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert set(answer.json()["error"]) == ERROR_FIELDS


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_generated_requests_to_a_control_route_find_no_500(proxy: RunningProxy, method: str, path: str) -> None:
    app: Any = proxy.proxy.app.control
    schema = schemathesis.openapi.from_dict(app.openapi())
    schema.config.update(base_url=proxy.url)

    @FEW
    @given(case=schema[path][method].as_strategy())
    def run(case: Any) -> None:
        headers = {"authorization": f"Bearer {CONTROL_KEY}"}
        refuse_a_bad_answer(case.call(base_url=proxy.url, headers=headers))

    run()


@FEW
@given(body=st.recursive(st.none() | st.booleans() | st.floats() | st.text() | st.integers(), st.lists, max_leaves=5))
def test_any_json_to_any_control_route_finds_no_500(proxy: RunningProxy, body: Any) -> None:
    content = json.dumps({"session": body, "budget": body, "value": body, "name": body, "rewards": body}).encode()
    for path in ("/weir/sessions", "/weir/sessions/x/finish", "/weir/rewards", "/weir/rewards/batch", "/weir/resume"):
        headers = {"authorization": f"Bearer {CONTROL_KEY}"}
        refuse_a_bad_answer(
            httpx.post(proxy.url + path, content=content, headers=headers, trust_env=False, timeout=120)
        )


PIECES = st.sampled_from(["/", "//", "s", "g", "v1", "chat", "completions", "models", "weir", "..", ".", "%2f", "%2F"])
ODD = st.binary(max_size=8).map(lambda data: "".join(f"%{byte:02x}" for byte in data))
PATHS = st.lists(PIECES | ODD | st.text(string.ascii_letters + "%?#;&=", max_size=5), max_size=8).map("/".join)


@FEW
@given(path=PATHS, ending=st.sampled_from(["", "/v1/chat/completions", "/v1/models", "/v1/messages"]))
def test_odd_paths_find_no_500(proxy: RunningProxy, path: str, ending: str) -> None:
    url = httpx.URL(proxy.url).copy_with(raw_path=b"/" + path.replace("#", "").encode() + ending.encode())
    answer = httpx.post(url, content=BODY, trust_env=False, timeout=60)
    assert answer.status_code < 500, answer.text


@FEW
@given(
    name=st.sampled_from(
        ["authorization", "x-api-key", "x-weir-session", "x-weir-group", "user-agent", "content-type"]
    ),
    value=st.lists(st.integers(0x21, 0xFF).filter(lambda byte: byte != 0x7F), max_size=300).map(bytes),
    method=st.sampled_from(["POST", "GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE"]),
    path=st.sampled_from(
        ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/models", "/metrics", "/weir/state"]
    ),
)
def test_odd_headers_and_methods_find_no_500(
    proxy: RunningProxy, name: str, value: bytes, method: str, path: str
) -> None:
    headers = {name.encode(): b"x" + value}
    answer = httpx.request(method, proxy.url + path, content=BODY, headers=headers, trust_env=False, timeout=60)
    assert answer.status_code < 500, answer.text


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/v1/nothing"])
@pytest.mark.parametrize("method", ["OPTIONS", "HEAD", "DELETE"])
def test_a_method_that_a_route_does_not_take_is_405_and_says_which_it_takes(
    proxy: RunningProxy, method: str, path: str
) -> None:
    answer = httpx.request(method, proxy.url + path, trust_env=False, timeout=120)
    if path == "/v1/nothing":
        assert answer.status_code == 404
    elif (method, path) == ("HEAD", "/v1/models"):
        assert (answer.status_code, answer.content) == (200, b"")
    else:
        assert answer.status_code == 405
        assert answer.headers["allow"] == ("POST" if "chat" in path else "GET, HEAD")


@given(st.text(max_size=30))
def test_a_path_is_taken_apart_without_loss(text: str) -> None:
    route, names = split_path(f"/g/{text}/s/{text}/v1/models")
    if "/" not in text:
        assert (names.group_id, names.session_id, route) == (text, text, "/v1/models")
    assert not (is_name(text) and "/" in text)


@pytest.mark.parametrize("path", ["/s/%ff/v1", "/s/a%00b/v1", "/s/%20/v1", "/s//v1", "/g//s/a/v1", "/g/%e2%80%ae/v1"])
def test_what_cannot_name_a_session_is_refused(proxy: RunningProxy, path: str) -> None:
    answer = proxy.post(path + "/chat/completions", BODY)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
