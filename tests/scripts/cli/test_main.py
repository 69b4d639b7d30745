"""The `weir` command for a first-time user: complete help, one line per mistake, nothing created by looking."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import typer
from support_servers import find_free_port
from typer.testing import CliRunner

from weir.agents.errors import TaskError
from weir.agents.family import family_tasks
from weir.agents.tasks import write_tasks
from weir.kernel_eval.errors import AddressUnavailable
from weir.scripts.cli.main import app
from weir.scripts.launch.errors import UsageError
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig


def every_command(group: typer.core.TyperGroup, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield (*words, name)
        if isinstance(command, typer.core.TyperGroup):
            yield from every_command(command, (*words, name))


def usage_error(folder: Path, *words: str) -> str:
    """The line that a wrong use of `weir` ends with, in an empty folder, which stays empty."""
    with contextlib.chdir(folder):
        error = CliRunner().invoke(app, words).exception
    assert isinstance(error, UsageError), error
    assert not list(folder.iterdir())
    return str(error)


def test_it_says_its_version() -> None:
    said = CliRunner().invoke(app, ["--version"])
    assert (said.exit_code, said.stdout) == (0, f"weir {metadata.version('weir-rl')}\n")


@pytest.mark.parametrize("words", list(every_command(typer.main.get_command(app))), ids=" ".join)
def test_every_command_and_option_is_explained(words: tuple[str, ...]) -> None:
    command = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]
    assert command.help
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"weir {' '.join(words)}: {parameter.name}"


def test_help_shows_names_of_sections() -> None:
    assert "default: [model] path" in " ".join(CliRunner().invoke(app, ["sft", "--help"]).stdout.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["proxy", "--port", "-4"], "--port -4: .*; see weir proxy --help"),
        (["kernel-eval", "--min-sandbox", "jail"], "--min-sandbox jail: .*'bubblewrap'; see weir kernel-eval --help"),
        (["engine", "--model", ".", "--device", "tpu"], "--device tpu: .*'cuda'; see weir engine --help"),
    ],
)
def test_a_flag_that_cannot_be_is_named(tmp_path: Path, words: list[str], message: str) -> None:
    assert re.fullmatch(message, usage_error(tmp_path, *words))


LOOKS = ["versions", "report", "sessions", "show s", "key list", "key revoke bob", "rollback 3", "round --dry-run"]
LOOKS += ["round --replay 1", "store verify", "store status"]


@pytest.mark.parametrize("words", [["sql", "SELECT 1"], *map(str.split, LOOKS)])
def test_looking_at_a_store_does_not_make_one(tmp_path: Path, words: list[str]) -> None:
    assert "there is no store in weir-data" in usage_error(tmp_path, *words)


def test_a_key_can_be_made_before_anything_else(tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        made, listed = (CliRunner().invoke(app, ["key", *words]) for words in (["add", "bob"], ["list"]))
    assert (made.exit_code, listed.exit_code) == (0, 0)
    assert listed.stdout.startswith("bob  made ")


@pytest.mark.parametrize("flag", [["--engine", "http://127.0.0.1:1"], ["--fail-on-regression"]])
def test_flags_of_a_regression_run_go_with_its_tasks(tmp_path: Path, flag: list[str]) -> None:
    said = usage_error(tmp_path, "sft", "--data", "pairs.jsonl", "--out", "new", *flag)
    assert said.startswith(f"{flag[0]} requires --tasks; ")


PAIRS = '{"entry_point": "A", "python_code": "", "triton_code": ""}\n'


@pytest.mark.parametrize("command", [["tasks", "check", "tasks.jsonl"], ["sft-data", "pairs.jsonl", "out.jsonl"]])
def test_without_a_judge_nothing_is_begun(tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_KERNEL_EVAL__URL", f"http://127.0.0.1:{find_free_port()}")
    write_tasks(tmp_path / "tasks.jsonl", family_tasks()[:1])
    (tmp_path / "pairs.jsonl").write_text(PAIRS)
    with contextlib.chdir(tmp_path):
        error = CliRunner().invoke(app, command).exception
    assert isinstance(error, UsageError), error
    assert str(error).startswith("no kernel-evaluation server at ") and "start `weir kernel-eval`" in str(error)
    assert {file.name for file in tmp_path.iterdir()} == {"tasks.jsonl", "pairs.jsonl"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere/out.jsonl"], "cannot write nowhere/out.jsonl: there is no folder nowhere; make it, or "),
        (["."], "cannot write .: it is a folder; name a file in it"),
        (["out.jsonl", "--relax-rule", "foo"], "--relax-rule foo: there is no such rule; the rules are asks_where_it"),
    ],
)
def test_data_for_a_cold_start_are_refused_before_anything_is_judged(
    tmp_path: Path, words: list[str], message: str
) -> None:
    assert usage_error(tmp_path, "sft-data", "pairs.jsonl", *words).startswith(message)


def test_pairs_that_are_not_there_leave_nothing_behind(tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        error = CliRunner().invoke(app, ["sft-data", "pairs.jsonl", "out.jsonl"]).exception
    assert isinstance(error, TaskError) and str(error).startswith("no pairs in pairs.jsonl: expected ")
    assert not list(tmp_path.iterdir())


def test_a_port_of_another_server_is_no_port_for_kernel_evaluation() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        error = CliRunner().invoke(app, ["kernel-eval", "--port", str(port)]).exception
    assert isinstance(error, AddressUnavailable), error
    assert str(error).startswith("cannot listen: Address already in use") and "set kernel_eval.host and" in str(error)


def test_no_line_in_the_list_of_commands_is_cut_short() -> None:
    for words in ([], ["store"], ["bench"]):
        page = CliRunner().invoke(app, [*words, "--help"], terminal_width=80).stdout
        assert "..." not in page.partition("Commands:")[2]


def test_a_compaction_without_work_says_so(tmp_path: Path) -> None:
    Catalog.open(StoreConfig(root=tmp_path)).close()
    done = CliRunner().invoke(app, ["store", "compact", "--root", str(tmp_path)])
    assert (done.exit_code, done.stdout) == (0, "nothing to compact: no segment waits\n")
