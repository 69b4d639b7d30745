"""One setting gives all servers of a run their ports."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from weir.scripts.cli.main import app
from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.fleet import check_ports, listening_ports
from weir.scripts.launch.port_row import row_length
from weir.scripts.launch.resolve import trainer_config
from weir.scripts.launch.servers import free_ports_in_row
from weir.scripts.launch.settings import load_settings


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "weir.toml"
    file.write_text(f'[store]\nroot = "{tmp_path / "store"}"\n{text}')
    return file


def ports(file: Path) -> dict[str, int]:
    return {name: port for name, _, port in listening_ports(load_settings(file))}


def test_all_ports_follow_the_first_and_engines_come_last(tmp_path: Path) -> None:
    found = ports(written(tmp_path, "[placement]\nfirst_port = 9100\n[engine]\ncount = 3\n"))
    assert found["proxy.port"] == 9100
    assert sorted(found.values()) == list(range(9100, 9108)) and row_length(3) == 8
    assert [found[name] for name in ("engine.port", "engine.port + 1", "engine.port + 2")] == [9105, 9106, 9107]


def test_a_port_that_is_set_by_itself_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_UI__PORT", "9999")
    found = ports(written(tmp_path, "[placement]\nfirst_port = 9100\n[router]\nport = 7000\n"))
    assert (found["ui.port"], found["router.port"]) == (9999, 7000)
    assert (found["proxy.port"], found["router.prometheus_port"], found["engine.port"]) == (9100, 9104, 9105)


def test_without_the_setting_every_section_has_its_own_default(tmp_path: Path) -> None:
    assert ports(written(tmp_path, ""))["proxy.port"] == 8700


def test_a_round_finds_the_servers_at_these_ports(tmp_path: Path) -> None:
    settings = load_settings(written(tmp_path, "[placement]\nfirst_port = 9100\n"))
    trainer = trainer_config(settings)
    assert trainer.proxy_urls == ["http://127.0.0.1:9100"] and trainer.router_url == "http://127.0.0.1:9103"


def test_too_high_a_port_is_refused_with_the_last_one_that_is_needed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="need the ports up to 65537"):
        load_settings(written(tmp_path, "[placement]\nfirst_port = 65530\n[engine]\ncount = 3\n"))


def test_a_taken_port_names_a_row_that_is_free(tmp_path: Path) -> None:
    first = free_ports_in_row(row_length(1))
    settings = load_settings(written(tmp_path, f"[placement]\nfirst_port = {first}\n"))
    with socket.create_server(("127.0.0.1", first + 2)), pytest.raises(UsageError) as refused:
        check_ports(settings)
    assert f"kernel_eval.port (127.0.0.1:{first + 2})" in str(refused.value)
    proposed = int(str(refused.value).partition("placement.first_port = ")[2].split()[0])
    moved = load_settings(written(tmp_path, f"[placement]\nfirst_port = {proposed}\n"))
    assert next(listening_ports(moved))[2] == proposed + 5


@pytest.mark.parametrize(("asked", "is_chosen"), [("9300", False), ("0", True)])
def test_init_writes_the_port_that_was_asked_for_or_chooses(
    tmp_path: Path, tiny_model_dir: Path, asked: str, is_chosen: bool
) -> None:
    out = tmp_path / "made.toml"
    words = ["init", "--scenario", "cpu", "--model", str(tiny_model_dir), "--out", str(out), "--first-port", asked]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    first = load_settings(out).proxy.port
    assert first > 1024 if is_chosen else first == 9300
    assert sorted(ports(out).values()) == list(range(first, first + len(ports(out))))
