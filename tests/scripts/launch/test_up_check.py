"""`weir up --check` names everything that would keep the servers from starting."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from weir.scripts.cli.main import app


def check(tmp_path: Path, text: str, *flags: str) -> tuple[int, str]:
    file = tmp_path / "weir.toml"
    file.write_text(text if "[store]" in text else f'[store]\nroot = "{tmp_path / "store"}"\n{text}')
    found = CliRunner().invoke(app, ["up", "--check", *flags, "--config", str(file)])
    return found.exit_code, found.output


def free_ports() -> str:
    return "[proxy]\nport = 0\n[kernel_eval]\nport = 0\n[router]\nport = 0\nprometheus_port = 0\n[ui]\nport = 0\n"


def test_a_run_that_can_start_passes_and_nothing_is_started(
    tmp_path: Path, tiny_model_dir: Path, free_port: int
) -> None:
    status, output = check(
        tmp_path, f'[model]\npath = "{tiny_model_dir}"\n[engine]\nport = {free_port}\n{free_ports()}'
    )
    assert (status, output) == (0, "weir.toml can be started\n")
    assert not (tmp_path / "store").exists()


def test_every_problem_is_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    root = tmp_path / "file" / "store"
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        text = f'[store]\nroot = "{root}"\n[model]\npath = "{tmp_path}"\n[engine]\ndevice = "cuda"\nport = {port}\n'
        status, output = check(tmp_path, text)
    assert status == 1
    assert f"another process has the port of engine.port (127.0.0.1:{port})" in output
    assert "it has no config.json" in output
    assert f"store.root = {root} cannot be written" in output
    if not torch.cuda.is_available():
        assert "engine.device = cuda, and torch finds no GPU" in output


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "[proxy]\nport = 9000\n[kernel_eval]\nport = 9000\n",
            "proxy.port and kernel_eval.port are all 127.0.0.1:9000",
        ),
        ("[engine]\ncount = 0\n", "set engine.urls to the engines that run elsewhere, or proxy.upstream_url"),
        ('[engine]\ncount = 0\n[proxy]\nupstream_url = "http://a:1"\n', "rounds would publish to no engine"),
        ('[trainer]\nprocesses = 2\ndevice = "cpu"\n', "processes are for GPUs"),
    ],
)
def test_settings_that_contradict_each_other_are_found_without_the_machine(
    tmp_path: Path, text: str, problem: str
) -> None:
    status, output = check(tmp_path, text, "--settings-only")
    assert status == 1 and problem in output


def test_engines_elsewhere_need_no_router_of_their_own(tmp_path: Path) -> None:
    text = '[engine]\nkind = "sglang"\ncount = 0\nurls = ["http://elsewhere:31000"]\n'
    assert check(tmp_path, text, "--settings-only") == (0, "weir.toml can be started\n")
