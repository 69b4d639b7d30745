"""`weir sql` at a terminal: real keys through prompt_toolkit's own pipe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from weir.scripts.cli.terminal.sql_shell import Shell, history_file, run_shell
from weir.store.config import StoreConfig


@pytest.fixture
def filled(config: StoreConfig, record: Any, make_call: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreConfig]:
    """A store of one call, and a place of its own for the history."""
    monkeypatch.setenv("XDG_STATE_HOME", str(config.root.parent / "state"))
    record([make_call("a", [1], [2], text="first")])
    return config


def typed(store: StoreConfig, keys: str) -> None:
    """A shell that is given these keys, and then its end."""
    with create_pipe_input() as pipe:
        pipe.send_text(keys + ".quit\r")
        run_shell(store, None, pipe, DummyOutput())


def test_a_question_ends_with_a_semicolon_and_may_take_several_lines(
    filled: StoreConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(filled, "SELECT call_id,\rtext FROM calls;\r.format csv\rSELECT text FROM calls;\r")
    out = capsys.readouterr().out
    assert "first" in out and out.endswith("text\nfirst\n")


def test_questions_are_remembered(filled: StoreConfig, capsys: pytest.CaptureFixture[str]) -> None:
    typed(filled, ".format csv\rSELECT 1 AS one;\r")
    assert capsys.readouterr().out == "one\n1\n"
    assert "+SELECT 1 AS one;" in history_file().read_text()


@pytest.mark.parametrize(
    ("begun", "offered"),
    [
        ("SELECT num_output_to", ["num_output_tokens"]),
        ("SELECT * FROM branch_c", ["branch_calls"]),
        ("sel", ["SELECT"]),
        ("FROM branch_t", ["branch_tokens("]),
    ],
)
def test_views_columns_macros_and_keywords_are_completed(filled: StoreConfig, begun: str, offered: list[str]) -> None:
    shell = Shell(filled, None)
    found = shell.completer().get_completions(Document(begun), CompleteEvent())
    assert [one.text for one in found] == offered
    shell.close()


def test_mistakes_are_said_and_the_shell_goes_on(filled: StoreConfig, capsys: pytest.CaptureFixture[str]) -> None:
    typed(filled, "SELECT colour FROM calls;\rDROP VIEW calls;\r.what\r.columns branches\r")
    out, err = capsys.readouterr()
    assert 'column "colour" not found' in err and "give one SELECT" in err
    assert ".refresh" in out and "num_longest_tokens" in out


def test_what_is_recorded_later_is_seen_after_a_refresh(
    filled: StoreConfig, record: Any, make_call: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(filled, None)
    shell.run(".format csv")
    record([make_call("b", [5], [6])], writer="other")
    for _ in range(2):
        shell.run("SELECT count(*) AS n FROM calls;")
        shell.run(".refresh")
    shell.close()
    assert capsys.readouterr().out == "n\n1\nn\n2\n"
