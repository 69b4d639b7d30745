"""`weir doctor`: its findings about this machine and an upstream, and when it exits with 1."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from support_host import ScriptedHost
from support_router import running_router
from support_servers import EngineFactory, find_free_port
from support_templates import FORMS, template_rendering
from typer.testing import CliRunner

from weir.scripts.cli.main import app


def doctor(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Exit status, and the findings by subject."""
    config = tmp_path / "weir.toml"
    config.write_text(f'[store]\nroot = "{tmp_path / "store"}"\n')
    result = CliRunner().invoke(app, ["doctor", "--config", str(config), "--json", *arguments])
    return result.exit_code, {finding["what"]: finding for finding in json.loads(result.stdout or "[]")}


def test_a_machine_that_runs_the_tests_has_what_is_required(tmp_path: Path) -> None:
    status, findings = doctor(tmp_path)
    assert status == 0
    assert {"python", "torch", "triton", "sandbox", "disk", "fdatasync", "port of proxy", "store"} <= set(findings)
    assert "missing" not in {finding["verdict"] for finding in findings.values()}


def test_it_says_how_the_model_is_rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    template_rendering(tmp_path / "mistral", FORMS["mistral"])
    monkeypatch.setenv("WEIR_MODEL__PATH", str(tmp_path / "mistral"))
    status, findings = doctor(tmp_path)
    assert status == 0
    assert findings["renderer"]["seen"] == "the model's own chat template"
    turns = findings["later turns"]
    assert turns["verdict"] == "warning" and "exact, but for a further question after a system prompt" in turns["seen"]


def test_engines_behind_a_router_are_certified_for_tokens_and_obey(
    engine_server: EngineFactory, tiny_model_dir: Path, tmp_path: Path
) -> None:
    engine = engine_server(tiny_model_dir, "--weight-version", "5")
    with running_router([engine.url], tmp_path) as router:
        status, findings = doctor(tmp_path, "--upstream", router.url)
    assert status == 0, findings
    assert findings["in front"]["seen"] == "a router with 1 engines"
    assert findings["weight version"]["seen"] == "5"
    assert {findings[what]["verdict"] for what in ("level tokens", "abort", "pause and continue")} == {"ok"}
    assert findings["level passthrough"]["verdict"] == "warning"


def test_a_version_that_is_no_integer_is_missing_unless_one_is_assumed(
    engine_server: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_server(None, "--weight-version", "default")
    status, findings = doctor(tmp_path, "--upstream", engine.url)
    assert status == 1 and findings["weight version"]["verdict"] == "missing"
    assert "'default', which is not an integer" in findings["weight version"]["seen"]
    assert "--weight-version 0" in findings["weight version"]["seen"]
    monkeypatch.setenv("WEIR_PROXY__ASSUMED_VERSION", "0")
    status, findings = doctor(tmp_path, "--upstream", engine.url)
    assert status == 0 and findings["weight version"]["verdict"] == "warning"
    assert "recorded as assumed version 0" in findings["weight version"]["seen"]


@pytest.mark.parametrize(("form", "best"), [("sglang", "passthrough"), ("vllm", "passthrough"), ("openai", "logprobs")])
def test_a_host_is_certified_for_what_it_gives_and_no_more(tmp_path: Path, form: Any, best: str) -> None:
    host = ScriptedHost(form)
    try:
        assert doctor(tmp_path, "--upstream", host.url)[0] == 1  # level tokens is the default
        status, findings = doctor(tmp_path, "--upstream", host.url, "--level", best)
    finally:
        host.stop()
    assert status == 0, findings
    good = {what for what, finding in findings.items() if what.startswith("level ") and finding["verdict"] == "ok"}
    assert good == {"level text", "level logprobs"} | ({"level passthrough"} if best == "passthrough" else set())
    assert findings["in front"]["seen"].startswith("no router")


def test_an_upstream_that_is_not_there_is_missing_with_advice(tmp_path: Path) -> None:
    status, findings = doctor(tmp_path, "--upstream", f"http://127.0.0.1:{find_free_port()}")
    assert status == 1
    assert findings["answers"]["verdict"] == "missing" and findings["answers"]["advice"]


def test_an_engine_is_as_far_from_the_trainer_as_its_weights_are(
    engine_server: EngineFactory, tiny_model_dir: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(tiny_model_dir, other)
    weights = load_file(other / "model.safetensors")
    save_file({name: -tensor for name, tensor in weights.items()}, other / "model.safetensors", {"format": "pt"})
    engine = engine_server(tiny_model_dir)
    what = "logprobs, trainer in float32"
    status, findings = doctor(tmp_path, "--exactness", engine.url, "--weights", str(tiny_model_dir))
    assert status == 0 and "over 512 tokens" in findings[what]["seen"], findings
    assert findings["share of tokens"]["seen"].startswith("above 0.001 nats 0.0%"), "only rounding"
    status, findings = doctor(tmp_path, "--exactness", engine.url, "--weights", str(other))
    assert status == 1 and findings[what]["verdict"] == "missing" and "more than rounding" in findings[what]["seen"]


def test_what_cannot_be_compared_is_named(tmp_path: Path, tiny_model_dir: Path) -> None:
    url = f"http://127.0.0.1:{find_free_port()}"
    status, findings = doctor(tmp_path, "--exactness", url, "--weights", str(tiny_model_dir))
    assert status == 1 and url in findings["engine"]["seen"]
    status, findings = doctor(tmp_path, "--exactness", url, "--weights", str(tmp_path))
    assert (status, findings) == (2, {})
