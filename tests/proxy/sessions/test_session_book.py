"""The caller of a request: which name decides, which are kept, and the control routes' answers and refusals."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from support_proxy import CONTROL_KEY, running_proxy
from support_way import Way

from weir.proxy.conversation.caller import Caller, Names, identify
from weir.proxy.errors import BadRequest
from weir.proxy.sessions.access_keys import SESSION_PREFIX
from weir.store.config import StoreConfig
from weir.store.maintenance.compact import compact
from weir.store.records.call_record import SessionSource

USER: Any = [{"role": "user", "content": "Hi"}]


def call(way: Way, path: str = "/v1", key: str = "agent", **options: Any) -> None:
    way.say("Hello.")
    way.proxy.client(path, api_key=key).chat.completions.create(model="weir", messages=USER, **options)


def test_tags_are_of_a_header_and_unknown_ones_are_refused() -> None:
    caller = Caller(Names(), None)
    assert identify(caller, {"x-weir-tags": " serve ,"}, None, {}).serves
    assert not identify(caller, {"x-weir-tags": ""}, None, {}).serves
    with pytest.raises(BadRequest, match="names a tag 'fast'; the only one is 'serve'"):
        identify(caller, {"x-weir-tags": "serve, fast"}, None, {})


def test_the_strongest_name_decides_and_the_others_are_kept() -> None:
    path = Names(session_id="p", group_id="gp")
    key = Names(session_id="k", group_id="gk")
    headers = {"x-weir-session": "h", "x-weir-group": "gh"}
    ids = {"user": "u"}

    identity = identify(Caller(path, key), headers, "d", ids)
    assert (identity.session_id, identity.source, identity.group_id) == ("p", SessionSource.PATH, "gp")
    assert identity.agent_ids == {"user": "u", "x-weir-session": "h", "x-weir-group": "gh", "key": "k"}

    identity = identify(Caller(Names(), key), headers, "d", ids)
    assert (identity.session_id, identity.source, identity.group_id) == ("k", SessionSource.KEY, "gk")

    identity = identify(Caller(Names(), None), headers, "d", ids)
    assert (identity.session_id, identity.source, identity.group_id) == ("h", SessionSource.HEADER, "gh")

    identity = identify(Caller(Names(), None), {}, "d", ids)
    assert (identity.session_id, identity.source, identity.group_id) == ("d", SessionSource.DIALECT, None)

    identity = identify(Caller(Names(), None), {}, None, {})
    assert (identity.session_id, identity.source, identity.group_id) == (None, SessionSource.INFERRED, None)


def test_each_way_of_naming_a_session_ends_up_in_the_record(way: Way) -> None:
    registered = way.proxy.control("POST", "/weir/sessions", {"group": "g1"}).json()
    call(way, "/g/team/s/one/v1")
    call(way, key=registered["api_key"])
    call(way, extra_headers={"x-weir-session": "three", "x-weir-group": "g3"})
    call(way, metadata={"session_id": "four"}, user="someone")
    call(way, user="five")
    call(way)
    found = [(r.session_id, r.session_source, r.group_id) for r in way.proxy.records()]
    root = found[-1][2]
    assert root.startswith("group_")
    assert found[:5] == [
        ("one", SessionSource.PATH, "team"),
        (registered["session"], SessionSource.KEY, "g1"),
        ("three", SessionSource.HEADER, "g3"),
        ("four", SessionSource.DIALECT, root),
        ("five", SessionSource.DIALECT, root),
    ]
    assert found[5][1] is SessionSource.INFERRED
    assert way.proxy.records()[3].agent_ids["user"] == "someone"


def test_a_registered_session_keeps_its_group_however_it_is_named(way: Way) -> None:
    registered = way.proxy.control(
        "POST", "/weir/sessions", {"session": "s1", "group": "g1", "task": {"task_id": "t"}, "group_size": 2}
    ).json()
    assert registered["base_url"] == f"{way.proxy.url}/s/s1/v1"
    call(way, "/s/s1/v1")
    call(way, extra_headers={"x-weir-session": "s1"})
    assert [(r.session_id, r.group_id) for r in way.proxy.records()] == [("s1", "g1")] * 2


def test_a_session_that_had_calls_before_it_was_registered_moves_to_its_registered_group(way: Way) -> None:
    call(way, "/s/early/v1")
    assert way.proxy.control("POST", "/weir/sessions", {"session": "early", "group": "g"}).status_code == 200
    call(way, "/s/early/v1")
    assert [record.group_id == "g" for record in way.proxy.records()] == [False, True]


def test_registering_again_gives_the_same_key_and_contradictions_are_refused(way: Way) -> None:
    body = {"session": "s1", "group": "g1", "group_size": 2}
    first = way.proxy.control("POST", "/weir/sessions", body).json()
    assert way.proxy.control("POST", "/weir/sessions", body).json() == first
    assert first["api_key"].startswith(SESSION_PREFIX)
    assert way.proxy.control("POST", "/weir/sessions", {"session": "s1", "group": "g2"}).status_code == 409
    assert (
        way.proxy.control("POST", "/weir/sessions", {"session": "s2", "group": "g1", "group_size": 3}).status_code
        == 409
    )


def test_an_unknown_session_key_is_refused(way: Way) -> None:
    answer = way.proxy.post(
        "/v1/chat/completions",
        {"model": "weir", "messages": USER},
        headers={"authorization": f"Bearer {SESSION_PREFIX}nobody"},
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")


def test_finish_and_rewards_are_idempotent_and_kept_in_the_catalog(way: Way) -> None:
    control = way.proxy.control
    session = control("POST", "/weir/sessions", {"group": "g"}).json()["session"]
    assert control("POST", f"/weir/sessions/{session}/finish", {"status": "failed", "info": {"why": "x"}}).json() == {
        "session": session,
        "status": "failed",
    }
    assert control("POST", f"/weir/sessions/{session}/finish", {"status": "failed"}).status_code == 200
    assert control("POST", f"/weir/sessions/{session}/finish").status_code == 409
    shown = control("GET", f"/weir/sessions/{session}").json()
    assert (shown["status"], shown["info"], shown["group"]) == ("failed", {"why": "x"}, "g")
    reward = {"session": session, "name": "score", "value": 0.5, "source": "test", "idempotency_key": "k"}
    assert control("POST", "/weir/rewards", reward).json()["added"] is True
    assert control("POST", "/weir/rewards", reward).json()["added"] is False
    assert control("POST", "/weir/rewards", reward | {"value": 1.0}).status_code == 409


def test_a_session_that_was_only_seen_can_be_finished_and_rewarded(way: Way) -> None:
    call(way, "/s/seen/v1")
    assert way.proxy.control("POST", "/weir/sessions/seen/finish").status_code == 200
    shown = way.proxy.control("GET", "/weir/sessions/seen").json()
    assert (shown["status"], shown["group"]) == ("done", way.proxy.records()[0].group_id)


CONTROL_ROUTES = [
    ("POST", "/weir/sessions"),
    ("GET", "/weir/sessions/s"),
    ("POST", "/weir/sessions/s/finish"),
    ("POST", "/weir/rewards"),
    ("GET", "/weir/state"),
    ("POST", "/weir/pause"),
    ("POST", "/weir/resume"),
]


@pytest.mark.parametrize(("method", "path"), CONTROL_ROUTES)
def test_agents_keys_open_no_control_route(way: Way, method: str, path: str) -> None:
    key = way.proxy.control("POST", "/weir/sessions", {}).json()["api_key"]
    for wrong in (key, "agent", "é"):
        headers = {b"authorization": b"Bearer " + wrong.encode()}
        answer = httpx.request(method, way.proxy.url + path, json={}, headers=headers, trust_env=False, timeout=120)  # type: ignore[arg-type]
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    assert way.proxy.proxy.gate.is_open


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/weir/rewards", {"session": "s"}, 400),
        (
            "POST",
            "/weir/rewards",
            {"session": "nobody", "name": "n", "value": 1, "source": "s", "idempotency_key": "k"},
            404,
        ),
        ("POST", "/weir/pause", {"mode": "slowly"}, 400),
        ("POST", "/weir/sessions", {"sesion": "typo"}, 400),
        ("POST", "/weir/sessions", {"session": "a/b"}, 400),
        ("POST", "/weir/sessions", {"group_size": 2**70}, 400),
        ("POST", "/weir/pause", {"mode": "drain", "limit_s": 1e300}, 400),
        ("POST", "/weir/sessions/nobody/finish", {}, 404),
        ("GET", "/weir/sessions/nobody", None, 404),
        ("GET", "/weir/nothing", None, 404),
        ("DELETE", "/weir/state", None, 405),
    ],
)
def test_control_errors_have_the_one_form(way: Way, method: str, path: str, body: Any, status: int) -> None:
    answer = way.proxy.control(method, path, body)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert way.proxy.proxy.gate.is_open


@pytest.mark.parametrize("value", [b"NaN", b"-Infinity", b'"\\ud800"'])
def test_what_only_pythons_json_reads_reaches_no_catalog(way: Way, value: bytes) -> None:
    headers = {"authorization": f"Bearer {CONTROL_KEY}", "content-type": "application/json"}
    answer = way.proxy.post("/weir/sessions", b'{"session": "s", "metadata": {"loss": %s}}' % value, headers=headers)
    assert answer.status_code == 400
    assert "not JSON" in answer.json()["error"]["message"]
    assert way.proxy.control("GET", "/weir/sessions/s").status_code == 404


def test_a_failure_that_was_not_foreseen_has_the_one_form_too(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(way.proxy.proxy.catalog, "find_session", fail)
    answer = way.proxy.control("GET", "/weir/sessions/s")
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "api_error")


@pytest.mark.parametrize("name", ["a?b", "a#b", "a%41", "a b", "é", "100%", "a&b=c"])
def test_the_base_url_of_a_session_leads_to_it_whatever_its_name(way: Way, name: str) -> None:
    base_url = way.proxy.control("POST", "/weir/sessions", {"session": name, "group": name}).json()["base_url"]
    call(way, base_url.removeprefix(way.proxy.url))
    (record,) = way.proxy.records()
    assert (record.session_id, record.session_source, record.group_id) == (name, SessionSource.PATH, name)


def test_state_health_and_metrics_tell_what_happened(open_way: Callable[..., Way]) -> None:
    way = open_way()
    call(way)
    state = way.proxy.control("GET", "/weir/state").json()
    assert (
        state | {"gate": "open", "weight_version": "0", "calls": 1, "in_flight": 0, "held": 0, "records_lost": 0}
        == state
    )
    assert (state["level"], state["renderer"], state["models"]) == ("tokens", "qwen3", ["weir"])
    assert httpx.get(way.proxy.url + "/healthz", timeout=120).status_code == 200
    assert httpx.get(way.proxy.url + "/readyz", timeout=120).status_code == 200
    metrics = httpx.get(way.proxy.url + "/metrics", timeout=120).text
    assert 'weir_calls_total{dialect="chat",finish="stop"} 1.0' in metrics
    assert 'weir_stitch_total{result="new_root"} 1.0' in metrics
    assert "weir_records_lost_total 0.0" in metrics
    assert "weir_gate_open 1.0" in metrics


WAYS_TO_NAME = ("path", "key", "header", "dialect")  # strongest first


@pytest.mark.parametrize(
    ("stronger", "weaker"), [(a, b) for i, a in enumerate(WAYS_TO_NAME) for b in WAYS_TO_NAME[i + 1 :]]
)
@pytest.mark.parametrize("key_header", ["authorization", "x-api-key"])
def test_of_two_names_the_stronger_decides_and_the_weaker_is_kept(
    way: Way, stronger: str, weaker: str, key_header: str
) -> None:
    way.say("Hello.")
    registered = way.proxy.control("POST", "/weir/sessions", {"session": "by-key", "group": "g-key"}).json()
    given = {stronger, weaker}
    headers = {}
    if "key" in given:
        key = registered["api_key"]
        headers[key_header] = f"Bearer {key}" if key_header == "authorization" else key
    if "header" in given:
        headers |= {"x-weir-session": "by-header", "x-weir-group": "g-header"}
    path = "/g/g-path/s/by-path/v1" if "path" in given else "/v1"
    body = {"model": "weir", "messages": USER} | ({"user": "by-dialect"} if "dialect" in given else {})
    assert way.proxy.post(path + "/chat/completions", body, headers=headers).status_code == 200
    (record,) = way.proxy.records()
    assert (record.session_id, record.session_source.value) == (f"by-{stronger}", stronger)
    assert record.group_id == f"g-{stronger}"
    assert f"by-{weaker}" in record.agent_ids.values()


def test_a_group_alone_in_the_path_or_a_header_joins_a_session_that_something_else_names(way: Way) -> None:
    call(way, "/g/team/v1", user="someone")
    call(way, extra_headers={"x-weir-group": "team"}, user="someone-else")
    assert [(r.session_id, r.group_id) for r in way.proxy.records()] == [("someone", "team"), ("someone-else", "team")]


@pytest.mark.parametrize("compacted", [False, True])
def test_a_session_that_another_proxy_served_can_be_finished_and_rewarded(
    way: Way, tiny_model_dir: Path, tmp_path: Path, compacted: bool
) -> None:
    root = tmp_path / "shared"
    with running_proxy(root, tiny_model_dir, way.router.url) as first:
        way.say("Hello.")
        first.client("/s/elsewhere/v1").chat.completions.create(model="weir", messages=USER)
    if compacted:
        compact(StoreConfig(root=root, segment_grace_s=0))
    with running_proxy(root, tiny_model_dir, way.router.url) as other:
        reward = {"session": "elsewhere", "name": "tests", "value": 0.5, "source": "ci", "idempotency_key": "k"}
        assert other.control("POST", "/weir/rewards", reward).status_code == 200
        assert other.control("POST", "/weir/sessions/elsewhere/finish").status_code == 200
        assert other.control("GET", "/weir/sessions/elsewhere").json()["status"] == "done"
        assert other.control("POST", "/weir/sessions/nowhere/finish").status_code == 404
