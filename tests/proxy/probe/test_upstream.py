"""The start of a proxy in front of an upstream that cannot give the level, or does not answer."""

import asyncio

import pytest
from support_host import ScriptedHost
from support_servers import EngineFactory, find_free_port

from weir.proxy.config import ProxyConfig
from weir.proxy.errors import SetupError
from weir.proxy.probe.upstream import certify
from weir.proxy.relay.levels import AT_TOKENS, Certified, Level


def found(url: str, level: str, *, limit_s: float = 60) -> Certified:
    config = ProxyConfig.model_validate({"level": level, "probe_limit_s": limit_s})
    return asyncio.run(certify(config, url, "weir", can_render=True))


@pytest.mark.parametrize(
    ("form", "server_flags", "level", "flags"),
    [
        ("sglang", True, Level.PASSTHROUGH, {"logprobs": "true"}),
        ("sglang", False, Level.PASSTHROUGH, None),
        ("vllm", False, Level.PASSTHROUGH, {"logprobs": "true", "return_token_ids": "true"}),
        ("openai", False, Level.LOGPROBS, {"logprobs": "true"}),
    ],
)
def test_auto_takes_the_best_with_the_fewest_flags(
    form: str, server_flags: bool, level: Level, flags: dict[str, str] | None
) -> None:
    host = ScriptedHost(form, server_flags=server_flags)  # type: ignore[arg-type]
    try:
        certified = found(host.url, "auto")
    finally:
        host.stop()
    assert certified.level is level
    sglext = {"return_input_ids_in_sglext": "true", "return_output_ids_in_sglext": "true"}
    assert certified.forms["chat"].flags == (flags if flags is not None else {"logprobs": "true", **sglext})
    assert "logprobs" in certified.forms["chat"].null


def test_level_tokens_is_refused_where_there_is_no_generate_and_nothing_is_sampled() -> None:
    host = ScriptedHost("vllm")
    try:
        with pytest.raises(SetupError, match=r"it has no /generate.*proxy\.level"):
            found(host.url, "tokens")
    finally:
        host.stop()
    assert host.bodies == []


@pytest.mark.parametrize(
    ("version", "assumed", "said"),
    [
        ("3", None, None),
        ("default", None, "name their weights 'default', which is not an integer: no round can train"),
        ("default", 3, "name their weights 'default', recorded as assumed version 3"),
    ],
)
def test_level_tokens_names_a_version_that_is_no_integer(
    engine_server: EngineFactory, version: str, assumed: int | None, said: str | None
) -> None:
    engine = engine_server(None, "--weight-version", version)
    config = ProxyConfig(assumed_version=assumed)
    certified = asyncio.run(certify(config, engine.url, "weir", can_render=True))
    assert certified.level is Level.TOKENS
    assert len(certified.remarks) == (0 if said is None else 1)
    assert said is None or said in certified.remarks[0]


def test_level_tokens_starts_before_its_router(caplog: pytest.LogCaptureFixture) -> None:
    assert found(f"http://127.0.0.1:{find_free_port()}", "tokens") == AT_TOKENS
    assert "not verified yet" in caplog.text


def test_other_levels_wait_for_their_upstream_and_then_say_what_they_waited_for() -> None:
    with pytest.raises(SetupError, match=r"passthrough needs an upstream that answers.*probe_limit_s"):
        found(f"http://127.0.0.1:{find_free_port()}", "passthrough", limit_s=0.3)


def test_the_key_of_the_upstream_is_not_shown_with_the_settings() -> None:
    assert "sk-secret" not in repr(ProxyConfig(upstream_api_key="sk-secret"))
