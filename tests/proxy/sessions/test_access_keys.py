"""Keys of agents: which ones open the proxy, what is stored of them, and where they never appear."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from support_way import Way
from typer.testing import CliRunner

from weir.proxy.sessions.access_keys import (
    ACCESS_PREFIX,
    SESSION_PREFIX,
    are_required,
    keys_shown,
    warning_of,
)
from weir.scripts.cli.main import app
from weir.store.catalog.keys import access_keys, key_hash
from weir.store.records.call_record import SessionSource

USER: Any = [{"role": "user", "content": "Hi"}]


def command(way: Way, *words: str) -> str:
    result = CliRunner().invoke(app, ["key", *words, "--root", str(way.proxy.store.root)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output.strip()


def status(way: Way, headers: dict[str, str], path: str = "/v1/chat/completions") -> int:
    return way.proxy.post(path, {"model": "weir", "messages": USER}, headers=headers).status_code


def test_a_key_is_asked_for_where_others_than_this_machine_can_reach_the_proxy() -> None:
    for host in ("127.0.0.1", "::1", "localhost", "127.8.8.8"):
        assert not are_required("auto", host)
        assert are_required("required", host)
    for host in ("0.0.0.0", "::", "10.0.0.3", "weir.example"):
        assert are_required("auto", host)
        assert not are_required("off", host)
        assert "weir key add" in (warning_of("off", host) or "")
    assert warning_of("off", "127.0.0.1") is None


def test_keys_are_read_from_both_headers() -> None:
    assert keys_shown({"authorization": "Bearer a", "x-api-key": "b"}) == ["a", "b"]
    assert keys_shown({"authorization": "bearer  a "}) == ["a"]
    assert keys_shown({"authorization": "Basic a", "x-api-key": " "}) == []


def test_only_good_keys_open_a_proxy_that_asks_for_them(open_way: Callable[..., Way]) -> None:
    way = open_way(access_keys="required")
    way.say("Hello.")
    key = command(way, "add", "laptop")
    session = way.proxy.control("POST", "/weir/sessions", {}).json()["api_key"]
    for good in (key, session):
        assert status(way, {"authorization": f"Bearer {good}"}) == 200
        assert status(way, {"x-api-key": good}) == 200
    for bad in (ACCESS_PREFIX + "x", SESSION_PREFIX + "x", "anything", "the-control-key-of-tests"):
        assert status(way, {"authorization": f"Bearer {bad}"}) == 401
        assert status(way, {"x-api-key": bad}) == 401
    assert status(way, {}) == 401
    assert status(way, {}, "/s/named/v1/chat/completions") == 401
    assert httpx.get(way.proxy.url + "/v1/models", timeout=120).status_code == 401
    assert httpx.get(way.proxy.url + "/v1/models", headers={"x-api-key": key}, timeout=120).status_code == 200
    assert httpx.get(way.proxy.url + "/healthz", timeout=120).status_code == 200


def test_a_revoked_key_opens_nothing(open_way: Callable[..., Way], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.proxy.sessions.access_keys.POLL_S", 0.0)
    way = open_way(access_keys="required")
    way.say("Hello.")
    key = command(way, "add", "laptop")
    assert status(way, {"x-api-key": key}) == 200
    assert command(way, "revoke", "laptop") == "laptop: revoked"
    assert status(way, {"x-api-key": key}) == 401
    assert command(way, "revoke", "laptop") == "laptop: was revoked before"
    assert "laptop" in command(way, "list") and "revoked" in command(way, "list")
    with pytest.raises(Exception, match="there is one of that name"):
        command(way, "add", "laptop")
    with pytest.raises(Exception, match="there is none"):
        command(way, "revoke", "desktop")


def test_keys_are_kept_as_hashes_and_appear_in_no_record_and_no_answer(
    way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    way.say("Hello.")
    caplog.set_level("DEBUG")
    key = command(way, "add", "laptop")
    session = way.proxy.control("POST", "/weir/sessions", {}).json()["api_key"]
    secret = key.removeprefix(ACCESS_PREFIX)
    answers = [
        way.proxy.post("/v1/chat/completions", {"model": model, "messages": USER}, headers={"x-api-key": shown})
        for shown in (key, session, key + "x", session + "x")
        for model in ("weir", "nothing")
    ]
    assert [row.key_hash for row in access_keys(way.proxy.proxy.catalog)] == [key_hash(key)]
    kept = b"".join(path.read_bytes() for path in way.proxy.store.root.rglob("*") if path.is_file())
    shown = b"".join(answer.content + str(answer.headers).encode() for answer in answers)
    for hidden in (secret, session):
        assert hidden.encode() not in kept
        assert hidden.encode() not in shown
        assert hidden not in caplog.text


def test_a_sessions_key_in_x_api_key_names_the_session(way: Way) -> None:
    way.say("Hello.")
    registered = way.proxy.control("POST", "/weir/sessions", {"group": "g"}).json()
    assert status(way, {"x-api-key": registered["api_key"], "authorization": "Bearer other"}) == 200
    (record,) = way.proxy.records()
    assert (record.session_id, record.session_source) == (registered["session"], SessionSource.KEY)
