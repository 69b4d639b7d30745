"""`weir proxy` as a process: where it listens, no torch, SIGTERM drains, kill -9 loses nothing."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from support_router import Router
from support_scripted_engine import Script, ScriptedEngine
from support_way import ids_of

from weir.store.log.segment_format import list_segments, read_segment
from weir.store.reader import connect
from weir.store.records.call_record import CallRecord

COMMAND = "import typer; from weir.scripts.cli.commands.servers import proxy; typer.run(proxy)"
USER: Any = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def started(
    scripted: tuple[ScriptedEngine, Router], tiny_model_dir: Path, tmp_path: Path
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A proxy process over tmp_path/store, and its base_url."""
    options = ["--upstream", scripted[1].url, "--model", str(tiny_model_dir), "--root", str(tmp_path / "store")]
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "--port", "0", *options],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"WEIR_PROXY__SHUTDOWN_LIMIT_S": "10"},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.match(r"base_url (http://127\.0\.0\.1:\d+/v1) \(model weir, renderer qwen3\)", line)
    assert found, line
    scripted[0].forget()
    yield process, found[1]
    if process.poll() is None:
        process.kill()
    process.wait()


def ask(url: str) -> Any:
    client = openai.OpenAI(base_url=url, api_key="agent", max_retries=0, timeout=120)
    return client.chat.completions.create(model="weir", messages=USER)


def records(store: Path) -> list[CallRecord]:
    return [r for s in list_segments(store / "log") for r in read_segment(s.path).records]


def test_a_proxy_process_never_loads_torch(
    started: tuple[subprocess.Popen[str], str], scripted: tuple[ScriptedEngine, Router]
) -> None:
    process, url = started
    scripted[0].script = lambda _: Script(ids=ids_of("Hello."))
    assert ask(url).choices[0].message.content == "Hello."
    mapped = Path(f"/proc/{process.pid}/maps").read_text()
    assert "uvloop" in mapped and "tokenizers" in mapped
    assert "libtorch" not in mapped


def test_no_module_of_the_proxy_imports_torch() -> None:
    code = "import weir.proxy.server, sys, json; print(json.dumps('torch' in sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(out) is False


def test_the_control_key_is_made_once_and_readable_by_its_owner_only(
    started: tuple[subprocess.Popen[str], str], tmp_path: Path
) -> None:
    path = tmp_path / "store" / "control.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    url = started[1].removesuffix("/v1") + "/weir/state"
    key = path.read_text().strip()
    assert httpx.get(url, headers={"authorization": f"Bearer {key}"}, timeout=120).status_code == 200
    assert httpx.get(url, headers={"authorization": "Bearer agent"}, timeout=120).status_code == 401
    assert list(path.parent.glob("control.key.*")) == []


def test_sigterm_lets_calls_in_flight_finish_and_closes_the_log(
    started: tuple[subprocess.Popen[str], str], scripted: tuple[ScriptedEngine, Router], tmp_path: Path
) -> None:
    process, url = started
    engine = scripted[0]
    engine.script = lambda _: Script(ids=ids_of("Hello."), cut="wait", cut_after=1)
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(ask(url)))
    thread.start()
    engine.wait_waiting()
    process.send_signal(signal.SIGTERM)
    while True:
        try:
            httpx.get(url + "/models", timeout=1)
        except httpx.TransportError:
            break
    engine.go_on()
    thread.join(120)
    assert process.wait(120) == 0
    assert answers[0].choices[0].message.content == "Hello."
    assert len(records(tmp_path / "store")) == 1
    assert all(segment.path.name.endswith(".sealed.wal") for segment in list_segments(tmp_path / "store" / "log"))


def test_what_was_answered_survives_kill_9(
    started: tuple[subprocess.Popen[str], str], scripted: tuple[ScriptedEngine, Router], tmp_path: Path
) -> None:
    process, url = started
    scripted[0].script = lambda _: Script(ids=ids_of("Hello."))
    answered = [ask(url).id.removeprefix("chatcmpl-") for _ in range(5)]
    process.kill()
    process.wait()
    assert [record.call_id.removeprefix("call_") for record in records(tmp_path / "store")] == answered


def test_a_call_in_flight_at_kill_9_is_lost_and_those_before_it_are_not(
    started: tuple[subprocess.Popen[str], str], scripted: tuple[ScriptedEngine, Router], tmp_path: Path
) -> None:
    process, url = started
    engine = scripted[0]
    engine.script = lambda _: Script(ids=ids_of("Hello."))
    ask(url)
    engine.script = lambda _: Script(ids=ids_of("Hello."), cut="wait", cut_after=1)
    mine = url.replace("/v1", "/g/team/s/mine/v1")

    def lose() -> None:
        with pytest.raises(openai.APIConnectionError):
            ask(mine)

    thread = threading.Thread(target=lose)
    thread.start()
    engine.wait_waiting()
    with connect(tmp_path / "store") as db:
        assert db.sql("FROM lost_calls").fetchall() == [], "it is on its way"
    process.kill()
    process.wait()
    thread.join(120)
    engine.go_on()
    with connect(tmp_path / "store") as db:
        rows = db.sql("SELECT session_id, group_id, reason FROM lost_calls").fetchall()
        [(call_id,)] = db.sql("SELECT call_id FROM lost_calls").fetchall()
    assert rows == [("mine", "team", "process_ended")]
    assert call_id not in {record.call_id for record in records(tmp_path / "store")}


def test_a_port_that_is_taken_is_a_clear_error(
    started: tuple[subprocess.Popen[str], str], tiny_model_dir: Path, tmp_path: Path
) -> None:
    port = httpx.URL(started[1]).port
    command = [
        sys.executable,
        "-m",
        "weir.scripts.cli.main",
        "proxy",
        "--port",
        str(port),
        "--model",
        str(tiny_model_dir),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert f"weir: cannot listen on 127.0.0.1:{port}: Address already in use; set proxy.host" in done.stderr


@pytest.mark.parametrize("broken", ["{}", '{"model_type": "qwen3"}'])
def test_a_start_that_fails_is_one_line_and_leaves_no_open_session(
    scripted: tuple[ScriptedEngine, Router], tiny_model_dir: Path, tmp_path: Path, broken: str
) -> None:
    model = shutil.copytree(tiny_model_dir, tmp_path / "model")
    (model / "config.json").write_text(broken)
    options = ["--upstream", scripted[1].url, "--model", str(model), "--root", str(tmp_path / "store")]
    command = [sys.executable, "-X", "dev", "-m", "weir.scripts.cli.main", "proxy", "--port", "0", *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert "set proxy.max_model_len" in done.stderr and "Unclosed" not in done.stderr
