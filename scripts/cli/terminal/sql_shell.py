"""The interactive shell of `weir sql`: queries with history and completion over one snapshot of the store.

A query ends with a semicolon and may span lines. Words that begin with a dot are the shell's own commands. The snapshot
is that of the start, or of the last `.refresh`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from weir.scripts.cli.terminal.interrupt import interruptible
from weir.scripts.cli.terminal.limits import contained
from weir.scripts.cli.terminal.result_output import FORMS, print_answer
from weir.store.errors import StoreError
from weir.store.query.question import answer_rows, asking
from weir.store.query.sql.views import VIEWS
from weir.store.reader import connect

if TYPE_CHECKING:
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output

    from weir.store.config import StoreConfig

HELP = """\
SELECT …;          ask; a question ends with a semicolon
.views             the views; .columns VIEW the columns of one
.format FORM       table, json or csv
.refresh           see what was recorded since the last time
.help, .quit       this, and the end (also Ctrl-D); Ctrl-C stops a question"""
WORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "HAVING", "JOIN", "LEFT JOIN", "USING", "WITH"),
    *("count(*)", "avg(", "sum(", "min(", "max(", "DESCRIBE", "EXPLAIN"),
    *(".views", ".columns", ".format", ".refresh", ".help", ".quit"),
    *("sequences(", "branch_tokens(", "discounted_return(", "span_text(", "token_text("),
)


class Shell:
    """One connection, its output format, and the shell's commands."""

    def __init__(self, store: StoreConfig, tokenizer: Path | None) -> None:
        self._store = store
        self._tokenizer = tokenizer
        self._form = "table"
        self._connection = connect(store, tokenizer)
        self.is_open = True

    def completer(self) -> WordCompleter:
        """Completes views, their columns, keywords, macros."""
        columns = self._connection.execute(
            "SELECT DISTINCT column_name FROM information_schema.columns WHERE table_schema = 'main'"
        ).fetchall()
        return WordCompleter([*VIEWS, *(name for (name,) in columns), *WORDS], ignore_case=True)

    def run(self, text: str) -> None:
        """Execute one entry; errors are printed."""
        try:
            if text.startswith("."):
                self._command(*text.rstrip(";").split())
            elif text:
                self._ask(text)
        except StoreError as error:
            print(error, file=sys.stderr)
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _ask(self, query: str) -> None:
        store = self._store
        limits = contained(store.query_memory_mb, store.query_timeout_s)
        with limits, interruptible(self._connection), asking(self._connection, store.query_timeout_s):
            print_answer(answer_rows(self._connection, query, {}), self._form, sys.stdout)

    def _command(self, name: str, *words: str) -> None:
        if name == ".views":
            print("\n".join(VIEWS))
        elif name == ".columns" and len(words) == 1:
            self._ask(f"SELECT column_name, column_type FROM (DESCRIBE {words[0]})")
        elif name == ".format" and words and words[0] in FORMS:
            self._form = words[0]
        elif name == ".refresh":
            self._connection.close()
            self._connection = connect(self._store, self._tokenizer)
        elif name == ".quit":
            self.is_open = False
        else:
            print(HELP)


def run_shell(
    store: StoreConfig, tokenizer: Path | None, keys: Input | None = None, screen: Output | None = None
) -> None:
    """Read and execute entries until `.quit` or the end of input. `keys` and `screen` replace the terminal in tests."""
    shell = Shell(store, tokenizer)
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(history_file())),
        completer=shell.completer(),
        complete_while_typing=False,
        lexer=PygmentsLexer(SqlLexer),
        multiline=True,
        key_bindings=_keys(),
        input=keys,
        output=screen,
    )
    print("one SELECT, and a semicolon; .help says more", file=sys.stderr)
    try:
        for text in _entries(session):
            shell.run(text)
            if not shell.is_open:
                return
    finally:
        shell.close()


def history_file() -> Path:
    """The file of the entry history: $XDG_STATE_HOME/weir/sql_history."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "weir"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "sql_history"


def _entries(session: PromptSession[str]) -> Iterator[str]:
    while True:
        try:
            yield session.prompt("weir> ").strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return


def _keys() -> KeyBindings:
    """Key bindings: Enter runs a complete entry, and starts a new line in an incomplete one."""
    keys = KeyBindings()

    @Condition
    def is_whole() -> bool:
        text = get_app().current_buffer.text.strip()
        return not text or text.startswith(".") or text.endswith(";")

    @keys.add("enter", filter=is_whole)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return keys
