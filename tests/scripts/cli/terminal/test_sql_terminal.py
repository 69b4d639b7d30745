"""`weir sql` in a real terminal: a pseudo-terminal, a process, keys as bytes."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from weir.store.config import StoreConfig

PROMPT = "weir>"


class Terminal:
    """A shell at a pseudo-terminal, and its output so far."""

    def __init__(self, config: StoreConfig, folder: Path) -> None:
        self._fd, theirs = pty.openpty()
        command = [sys.executable, "-m", "weir.scripts.cli.main", "sql", "--root", str(config.root)]
        environment = os.environ | {
            "XDG_STATE_HOME": str(folder / "state"),
            "TERM": "xterm",
            "PROMPT_TOOLKIT_NO_CPR": "1",
        }
        self._process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment, start_new_session=True
        )
        os.close(theirs)
        self.seen = ""
        self._unread = ""
        self.wait_for(PROMPT)

    def wait_for(self, text: str) -> None:
        """Read until `text` was written, after the last text that was waited for."""
        while text not in self._unread:
            self._read()
        self._keep_what_follows(text)

    def press_until(self, keys: str, text: str) -> None:
        """Press keys until `text` is written: the history is loaded beside the prompt, and is empty until then."""
        while text not in self._unread:
            self.type(keys)
            while text not in self._unread and select.select([self._fd], [], [], 0.5)[0]:
                self._read()
        self._keep_what_follows(text)

    def _read(self) -> None:
        self._unread += os.read(self._fd, 4096).decode(errors="replace")

    def _keep_what_follows(self, text: str) -> None:
        before, found, self._unread = self._unread.partition(text)
        self.seen += before + found

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def end(self) -> int:
        """Send Ctrl-D; returns the exit status."""
        self.type("\x04")
        return self._process.wait()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._fd)


@pytest.fixture
def begin(config: StoreConfig, record: Any, make_call: Any, tmp_path: Path) -> Iterator[Any]:
    """Starts shells over a store of one call."""
    record([make_call("a", [1], [2], text="first")])
    started: list[Terminal] = []

    def start() -> Terminal:
        started.append(Terminal(config, tmp_path))
        return started[-1]

    yield start
    for terminal in started:
        terminal.close()


def test_questions_are_completed_by_tab_and_come_back_by_the_up_key_in_the_next_shell(begin: Any) -> None:
    first = begin()
    first.type("SELECT 4000 + num_output_tok\t")
    first.wait_for("ens")  # only what is new is drawn
    first.type(" AS n FROM calls;\r")
    first.wait_for("4001")  # a shorter number is also that of a column to which the cursor moves
    first.wait_for(PROMPT)
    assert first.end() == 0
    second = begin()
    second.press_until("\x1b[A", "num_output_tokens")
    second.type("\r")
    second.wait_for("4001")
    second.wait_for(PROMPT)  # before it, the terminal itself would take Ctrl-D
    assert second.end() == 0


def test_ctrl_c_stops_a_question_and_the_shell_goes_on(config: StoreConfig, record: Any, make_call: Any) -> None:
    record([make_call("a", [1], [2])])
    code = f"""
import os, signal, threading
from weir.scripts.cli.terminal.sql_shell import Shell
from weir.store.config import StoreConfig
signal.signal(signal.SIGINT, signal.default_int_handler)  # the background jobs of a shell are started without it
shell = Shell(StoreConfig(root={str(config.root)!r}), None)
shell.run(".format csv")
threading.Timer(1, os.kill, [os.getpid(), signal.SIGINT]).start()
shell.run("SELECT count(*) FROM range(1000000000000) a WHERE hash(a.range) = 1;")
shell.run("SELECT 6 * 7 AS n;")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "n\n42\n"), done.stderr
    assert "stopped" in done.stderr
