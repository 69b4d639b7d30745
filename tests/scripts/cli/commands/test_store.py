"""The commands that inspect the store, run as a user runs them."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from weir.scripts.cli.commands import sql, store, store_upkeep
from weir.scripts.launch.errors import CommandError
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.refusals import REST, Times, note_refusals
from weir.store.catalog.rows import RewardRow
from weir.store.config import StoreConfig
from weir.store.errors import StoreError

app = typer.Typer()
app.command("sql")(sql.sql)
for name in ("sessions", "show", "store_status"):
    app.command(name.removeprefix("store_"))(getattr(store, name))
for name in ("store_compact", "store_gc", "store_verify"):
    app.command(name.removeprefix("store_"))(getattr(store_upkeep, name))


def weir(folder: Path, *words: str, stdin: str = "") -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command in a folder without a weir.toml, errors as `weir` prints them."""
    with contextlib.chdir(folder):
        done = CliRunner().invoke(app, words, input=stdin)
    if isinstance(done.exception, StoreError | CommandError):
        return done.exception.exit_code, done.stdout, f"weir: {done.exception}\n"
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def filled(config: StoreConfig, record: Any, make_call: Any) -> list[str]:
    """Arguments that name a store with session s-1 of two calls over two versions, and its neighbour s-2."""
    catalog = Catalog.open(config)
    catalog.register_session("s-1", "g", task=None, group_size=None, metadata={}, key_hash=None)
    reward: dict[str, Any] = {"name": "r", "source": "t", "idempotency_key": "k"}
    catalog.add_rewards([RewardRow(session_id="s-1", call_id="a", value=0.25, **reward)])
    catalog.close()
    record(
        [
            make_call(
                "a", [1], [2, 3], session_id="s-1", text="one [line]\nand another", versions=[(1, "1"), (1, "2")]
            ),
            make_call("b", [1, 2, 3, 4], [5], session_id="s-1", at=2_000_000, text=""),
            make_call("c", [9], [9], session_id="s-2", at=3_000_000),
        ]
    )
    return ["--root", str(config.root)]


def test_what_a_model_wrote_does_not_reach_the_terminal_as_an_escape_sequence(
    tmp_path: Path, config: StoreConfig, record: Any, make_call: Any
) -> None:
    record([make_call("a", [1], [2], session_id="s", text="\x1b[2Jclean\x07")])
    root = ["--root", str(config.root)]
    for words in (["sql", "SELECT text FROM calls"], ["show", "s", "--full"]):
        out = weir(tmp_path, *words, *root)[1]
        assert "\ufffd[2Jclean\ufffd" in out and "\x1b" not in out and "\x07" not in out


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    status, _, err = weir(tmp_path, "sql", "SELECT 1", "--root", "nowhere")
    assert (status, err.splitlines()) == (
        2,
        ["weir: there is no store in nowhere: name its folder by --root, or its weir.toml by --config"],
    )
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "other").mkdir()
    assert "no store in other" in weir(tmp_path, "sql", "SELECT 1", "--root", "other")[2]
    assert list((tmp_path / "other").iterdir()) == []


def test_sessions_are_listed_latest_first(tmp_path: Path, filled: list[str]) -> None:
    status, out, _ = weir(tmp_path, "sessions", *filled)
    rows = [line.split() for line in out.splitlines() if line.startswith((" s-", "s-"))]
    assert status == 0
    assert [row[:-2] for row in rows] == [
        ["s-2", "g", "seen", "1", "1", "1", "1", "0"],
        ["s-1", "g", "running", "2", "2", "2", "3", "0.25", "0–2"],
    ]
    assert "s-" not in weir(tmp_path, "sessions", "--group", "other", *filled)[1]


def test_sessions_are_listed_with_the_requests_that_were_refused(
    tmp_path: Path, config: StoreConfig, filled: list[str]
) -> None:
    refused = {replace(REST, session_id="s-2"): 3, replace(REST, code="not_found"): 2}
    with contextlib.closing(Catalog.open(config)) as catalog:
        note_refusals(catalog, {key: Times(num_requests=n, first_us=1, last_us=2) for key, n in refused.items()})
    status, out, _ = weir(tmp_path, "sessions", *filled)
    rows = [line.split() for line in out.splitlines() if line.startswith((" s-", "s-"))]
    assert status == 0
    assert [row[:8] for row in rows] == [
        ["s-2", "g", "seen", "1", "1", "1", "1", "3"],
        ["s-1", "g", "running", "2", "2", "2", "3", "0.25"],
    ]
    assert "2 more requests were refused, of no session above: weir sql 'FROM refusals' has why" in out


def test_show_draws_the_tree_of_a_session_or_group(tmp_path: Path, filled: list[str]) -> None:
    status, out, _ = weir(tmp_path, "show", "s-1", *filled)
    assert status == 0
    assert out.splitlines() == [
        "s-1  group g  running  2 calls  reward 0.25",
        "└── root stop  1 (+1) → 2 tokens  v1:0-1 v2:1-2  reward 0.25  a",
        "    user   prompt of a",
        "    says   one [line] and another",
        "    └── turn stop  4 (+1) → 1 tokens  v0  b",
        "        user   prompt of b",
    ]
    full = weir(tmp_path, "show", "s-1", "--full", *filled)[1]
    assert "    says   one [line]\n" in full.replace("│", " ") and "           and another\n" in full.replace("│", " ")
    whole_group = weir(tmp_path, "show", "g", *filled)[1]
    assert [line.split()[0] for line in whole_group.splitlines() if line.startswith("s-")] == ["s-1", "s-2"]
    status, _, err = weir(tmp_path, "show", "s", *filled)
    assert (status, err) == (2, "weir: 's' fits 2 ids: s-1, s-2; give more of the id\n")
    assert weir(tmp_path, "show", "x", *filled)[0] == 2


def test_status_and_compact_say_what_there_is(tmp_path: Path, filled: list[str]) -> None:
    assert "3: 0 in Parquet, 3 in the log" in weir(tmp_path, "status", *filled)[1]
    status, out, _ = weir(tmp_path, "compact", *filled)
    assert (status, out.split(",")[0]) == (0, "compacted 1 segments: 3 calls")
    assert "3: 3 in Parquet, 0 in the log" in weir(tmp_path, "status", *filled)[1]


def test_verify_names_damage_ends_with_one_and_repairs_when_asked(
    tmp_path: Path, filled: list[str], config: StoreConfig
) -> None:
    assert weir(tmp_path, "compact", *filled)[0] == 0
    assert weir(tmp_path, "verify", *filled)[:2] == (0, "3 calls read: the store is sound\n")
    [path] = config.data_dir.iterdir()
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-9])
    status, out, err = weir(tmp_path, "verify", *filled)
    assert (status, path.name in out, "--repair" in err) == (1, True, True)
    status, out, _ = weir(tmp_path, "verify", "--repair", *filled)
    assert (status, "1 segments compacted again" in out, "set aside: " in out) == (0, True, True)
    assert weir(tmp_path, "verify", *filled)[:2] == (0, "3 calls read: the store is sound\n")


def test_gc_deletes_what_crashes_left_and_keeps_files_whose_calls_are_nowhere_else(
    tmp_path: Path, filled: list[str], config: StoreConfig
) -> None:
    assert weir(tmp_path, "compact", *filled)[0] == 0
    [path] = config.data_dir.iterdir()
    (config.data_dir / "half.parquet.tmp").write_bytes(b"PAR1")
    (config.data_dir / "twice.parquet").write_bytes(path.read_bytes())
    (config.data_dir / "unreadable.parquet").write_bytes(b"PAR1")
    for left in config.data_dir.iterdir():
        os.utime(left, (0, 0))  # longer ago than the grace
    status, out, _ = weir(tmp_path, "gc", *filled)
    assert (status, "2 leftovers of crashes" in out) == (0, True)
    assert {left.name for left in config.data_dir.iterdir()} == {path.name, "unreadable.parquet"}
