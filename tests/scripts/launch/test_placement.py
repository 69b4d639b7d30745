"""Which GPUs serve, train and judge: the rules, and what the processes of each role see."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.fleet import fleet
from weir.scripts.launch.placement import PlacementConfig, check_placement, of_engine, visible
from weir.scripts.launch.resolve import see_training_gpus
from weir.scripts.launch.servers import Server, running
from weir.scripts.launch.settings import Settings, load_settings


def settings_of(tmp_path: Path, placement: str) -> Settings:
    file = tmp_path / "weir.toml"
    file.write_text(
        f'[store]\nroot = "{tmp_path / "store"}"\n[model]\npath = "m"\n[engine]\ncount = 2\n[placement]\n{placement}\n'
    )
    return load_settings(file)


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        ("serve = [0, 1]\ntrain = [1, 2]", r"serve and train share GPU 1: give each GPU .* colocated = true"),
        ("train = [3]\njudge = [3]", r"train and judge share GPU 3"),
        ("serve = [0, 0]", r"serve names a GPU twice: \[0, 0\]"),
        ("serves = [0]", r"unknown key placement\.serves; valid here: colocated, first_port, judge, serve, train"),
    ],
)
def test_what_contradicts_itself_is_refused(tmp_path: Path, placement: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        settings_of(tmp_path, placement)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("", "a round of trainer.processes = 1 has no ranks"),
        (
            "[trainer]\nprocesses = 2\n[placement]\ncolocated = true",
            "the ranks of a round end before engines have room",
        ),
    ],
)
def test_ranks_that_cannot_send_a_version_are_refused(tmp_path: Path, settings: str, words: str) -> None:
    file = tmp_path / "weir.toml"
    file.write_text(f'[publish]\nway = "distributed"\nby_ranks = true\n{settings}')
    with pytest.raises(UsageError, match=rf"publish\.by_ranks: .*{words}"):
        load_settings(file)


def test_roles_share_gpus_where_they_are_colocated() -> None:
    config = PlacementConfig(serve=(0, 1), train=(0, 1), judge=(1,), colocated=True)
    check_placement(config, 2, 2)
    assert config.takes_turns and (config.serve, config.train, config.judge) == ((0, 1), (0, 1), (1,))


def test_gpus_that_the_machine_does_not_have_are_refused_where_it_is_known() -> None:
    config = PlacementConfig(train=(1, 4, 5))
    with pytest.raises(UsageError, match=r"placement\.train names GPU 4, 5, and this machine has 4 \(0 to 3\)"):
        check_placement(config, 1, 4)
    check_placement(config, 1, None)
    check_placement(config, 1, 0)


def test_engines_share_their_gpus_evenly() -> None:
    config = PlacementConfig(serve=(4, 5, 6, 7))
    assert [of_engine(config, number, 2) for number in range(2)] == [(4, 5), (6, 7)]
    with pytest.raises(UsageError, match=r"has 4 GPUs for engine\.count = 3 engines"):
        check_placement(config, 3, 8)


def test_each_server_sees_the_gpus_of_its_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(tmp_path, "serve = [0, 1]\ntrain = [2]\njudge = [3]")
    for there, seen in ((4, ["0", "1", None, None, "3", None, None]), (None, [None] * 7)):
        monkeypatch.setattr("weir.scripts.launch.fleet.num_gpus", lambda there=there: there)
        servers = fleet(settings, None)
        assert [server.environment.get("CUDA_VISIBLE_DEVICES") for server in servers] == seen
        assert [server.name for server in servers][2:5] == ["sglang-router", "proxy", "kernel-eval"]


def test_a_process_gets_the_variable(tmp_path: Path) -> None:
    program = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'), flush=True)"
    log = tmp_path / "seen.log"
    server = Server(
        name="seen",
        argv=[sys.executable, "-c", program],
        ready_url=None,
        log_path=log,
        environment=visible((2, 3), 4),
    )
    with running([server]) as [process]:
        process.wait()
    assert log.read_text() == "2,3\n"


@pytest.mark.parametrize(("there", "seen"), [(4, "2,3"), (None, None)])
def test_rounds_see_the_gpus_that_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: int | None, seen: str | None
) -> None:
    environment: dict[str, Any] = {}
    monkeypatch.setattr("os.environ", environment)
    monkeypatch.setattr("weir.scripts.launch.placement.num_gpus", lambda: there)
    see_training_gpus(settings_of(tmp_path, "train = [2, 3]"))
    assert environment.get("CUDA_VISIBLE_DEVICES") == seen
