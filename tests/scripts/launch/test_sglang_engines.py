"""The command lines of SGLang servers, and what is said of an interpreter that cannot run them.

The package that these tests put on the path is only a name and a version: nothing is started from it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.fleet import fleet
from weir.scripts.launch.servers import Server
from weir.scripts.launch.settings import load_settings
from weir.scripts.launch.sglang_engines import version_numbers


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path of started interpreters, with a package of SGLang's name."""
    folder = tmp_path / "site"
    (folder / "sglang").mkdir(parents=True)
    (folder / "sglang" / "__init__.py").touch()
    name_version(folder, "0.5.23")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


def name_version(folder: Path, version: str) -> None:
    info = folder / "sglang-0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")


def servers(tmp_path: Path, engine: str, more: str = "", model_type: str = "qwen3") -> list[Server]:
    model = tmp_path / "m"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps({"model_type": model_type}))
    file = tmp_path / "weir.toml"
    file.write_text(
        f'[store]\nroot = "{tmp_path / "store"}"\n[model]\npath = "{model}"\nname = "qwen"\n'
        f'[engine]\nkind = "sglang"\n{engine}\n{more}'
    )
    return fleet(load_settings(file), file)


def test_servers_have_the_flags_that_exactness_needs_and_a_router_that_keeps_sessions(
    tmp_path: Path, installed: Path
) -> None:
    engine = 'count = 2\nport = 4000\nseed = 7\nargs = ["--tp-size", "2"]\nenv = { HOME = "/h" }'
    first, second, router = servers(tmp_path, engine)[:3]
    line = " ".join(first.argv)
    assert line.startswith(f"{sys.executable} -m sglang.launch_server --model-path {tmp_path / 'm'}")
    assert "--served-model-name qwen --host 127.0.0.1 --port 4000" in line
    assert "--incremental-streaming-output --weight-version 0" in line and "--random-seed 7" in line
    assert line.endswith("--tp-size 2")
    assert not {"--device", "--dtype", "--tool-call-parser", "--return-output-ids"} & set(first.argv)
    assert first.environment["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"] == "false"
    assert first.environment["HOME"] == "/h"
    assert first.ready_url == "http://127.0.0.1:4000/health"
    assert "--port 4001" in " ".join(second.argv) and "--random-seed 8" in " ".join(second.argv)
    assert "--policy manual --assignment-mode min_load" in " ".join(router.argv)


def test_settings_that_are_set_become_flags(tmp_path: Path, installed: Path) -> None:
    engine = 'device = "cpu"\ndtype = "bfloat16"\nmax_running = 8\nmax_model_len = 4096\nweight_version = "5"'
    line = " ".join(servers(tmp_path, engine)[0].argv)
    for flags in ("--device cpu", "--dtype bfloat16", "--max-running-requests 8", "--context-length 4096"):
        assert flags in line
    assert "--weight-version 5" in line


@pytest.mark.parametrize(("family", "parser"), [("qwen3", "--tool-call-parser qwen25"), ("mamba", None)])
def test_an_engine_that_renders_itself_returns_ids_and_has_the_parsers_of_its_family(
    tmp_path: Path, installed: Path, family: str, parser: str | None
) -> None:
    line = " ".join(servers(tmp_path, "", '[proxy]\nlevel = "passthrough"', model_type=family)[0].argv)
    assert "--return-input-ids --return-output-ids" in line
    assert ("--tool-call-parser" in line) == (parser is not None)
    assert parser is None or parser in line


def test_engines_elsewhere_need_no_interpreter_and_get_a_router(tmp_path: Path) -> None:
    engine = 'count = 0\npython = "/nowhere"\nurls = ["http://a:1/", "http://b:2"]'
    router, *rest = servers(tmp_path, engine)
    assert "--worker-urls http://a:1 http://b:2 --policy manual" in " ".join(router.argv)
    assert [server.name for server in rest] == ["proxy", "kernel-eval", "compactor", "ui"]


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ('python = "/nowhere/python"', r"engine\.python = '/nowhere/python' cannot be run \(No such file.*pip install"),
        ("", r"has no SGLang \(.*\): install it there with `.* -m pip install 'sglang>=0\.5\.20'`"),
        ('ledger = "l"', r"ledger: only with kind = 'embedded', and it is 'sglang'"),
    ],
)
def test_what_cannot_be_started_is_said_with_the_remedy(tmp_path: Path, engine: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        servers(tmp_path, engine)


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ('args = ["--port=5"]', r"engine\.args has --port, .* set engine\.port instead"),
        ('args = ["--weight-version", "default"]', r"set engine\.weight_version instead"),
        ('weight_version = "default"', r"'default': with kind = 'sglang' it must be an integer"),
    ],
)
def test_flags_that_would_break_exactness_are_refused(tmp_path: Path, installed: Path, engine: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        servers(tmp_path, engine)


def test_an_old_sglang_is_refused_with_the_one_that_is_needed(tmp_path: Path, installed: Path) -> None:
    name_version(installed, "0.5.9")
    with pytest.raises(UsageError, match=r"has SGLang 0\.5\.9; Weir needs 0\.5\.20 or later"):
        servers(tmp_path, "")


def test_versions_are_compared_as_numbers() -> None:
    assert version_numbers("0.5.9") < version_numbers("0.5.20") < version_numbers("0.5.23.post1")
    assert version_numbers("unknown") == ()


def test_settings_of_sglang_are_refused_for_the_embedded_engine(tmp_path: Path) -> None:
    file = tmp_path / "weir.toml"
    file.write_text('[engine]\nargs = ["--tp-size", "2"]\n')
    with pytest.raises(UsageError, match=r"args: only with kind = 'sglang', and it is 'embedded'"):
        load_settings(file)
