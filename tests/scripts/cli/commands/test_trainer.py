"""The commands, as processes over a weir.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support_rounds import Judge, add_group
from support_servers import EngineFactory

from weir.store.config import StoreConfig
from weir.store.reader import connect

_COMMAND = """
import sys, typer
from weir.scripts.cli.commands import trainer as trainer_commands
from weir.scripts.cli.commands.weights import versions as versions_command
app = typer.Typer(pretty_exceptions_enable=False)
app.command("round")(trainer_commands.round_)
app.command("publish")(trainer_commands.publish)
app.command("rollback")(trainer_commands.rollback)
app.command("versions")(versions_command.versions)
try:
    app(standalone_mode=True)
except Exception as error:
    print(f"weir: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
"""


def weir(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command; its environment has one torch thread."""
    command = [sys.executable, "-c", _COMMAND, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def config(tmp_path: Path, store: StoreConfig, tiny_model_dir: Path, judge: Judge) -> Path:
    """A weir.toml over the store."""
    file = tmp_path / "weir.toml"
    file.write_text(
        f'[store]\nroot = "{store.root}"\n[model]\npath = "{tiny_model_dir}"\n'
        "[engine]\ncount = 0\n[trainer]\nproxy_urls = []\n"
        f'kernel_eval_url = "{judge.url}"\ndevice = "cpu"\nnum_correct_trials = 1\n'
    )
    return file


def test_a_round_is_planned_run_listed_and_published(
    config: Path, store: StoreConfig, tiny_model_dir: Path, engine_server: EngineFactory
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    planned = weir("round", "--dry-run", "--config", str(config))
    assert "round 1 would train version 1 from version 0" in planned.stdout
    assert "g1 (g1): 2 sessions" in planned.stdout
    assert not (store.root / "versions").exists()
    done = weir("round", "--config", str(config))
    assert done.returncode == 0, done.stderr
    assert "round 1 → version 1" in done.stdout
    folder = store.root / "versions" / "00000001"
    assert list((store.root / "tensorboard").iterdir()) != []
    assert str(folder) in weir("versions", "--config", str(config)).stdout
    again = weir("round", "--replay", "1", "--config", str(config))
    assert "round 1 repeats bit for bit" in again.stdout, again.stderr
    unset = weir("publish", str(folder), "--config", str(config))
    assert (unset.returncode, "no engine to publish to" in unset.stderr) == (2, True)
    engine = engine_server()
    config.write_text(config.read_text() + f'engine_urls = ["{engine.url}"]\n')
    published = weir("publish", str(folder), "--config", str(config))
    assert "version 1 is served by http" in published.stdout, published.stderr
    assert engine.get("/model_info")["weight_version"] == "1"
    newest = weir("rollback", "1", "--config", str(config))
    assert (newest.returncode, "version 1 is the newest already" in newest.stderr) == (2, True)
    adopted = weir("publish", str(tiny_model_dir), "--config", str(config))
    assert f"version 2 has the weights of {tiny_model_dir}" in adopted.stdout, adopted.stderr
    assert engine.get("/model_info")["weight_version"] == "2"


def test_an_engine_that_is_left_out_is_an_exit_status_of_the_round_and_of_publishing(
    config: Path, store: StoreConfig, tiny_model_dir: Path, engine_server: EngineFactory
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    nobody = "http://127.0.0.1:1"
    config.write_text(config.read_text() + f'engine_urls = ["{engine_server().url}", "{nobody}"]\n')
    folder = store.root / "versions" / "00000001"
    for command in (("round",), ("publish", str(folder))):
        done = weir(*command, "--config", str(config))
        assert done.returncode == 1, done.stderr
        assert f"engine {nobody} is paused and out of rotation" in done.stdout
    with connect(store) as sql:
        assert sql.sql("SELECT version, consumed FROM versions, groups").fetchall() == [(1, True)]


def test_with_too_few_groups_a_round_says_how_many_there_are(
    config: Path, store: StoreConfig, tiny_model_dir: Path
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    config.write_text(config.read_text() + "min_groups = 3\n")
    said = "no round: too few finished groups are waiting: 1 of the 3 that trainer.min_groups asks for are ready"
    for words in ([], ["--dry-run"]):
        done = weir("round", *words, "--config", str(config))
        assert (done.returncode, done.stdout.strip()) == (0, said), done.stderr


def test_a_folder_that_is_no_version_is_refused(config: Path, tmp_path: Path) -> None:
    done = weir("publish", str(tmp_path), "--config", str(config))
    assert done.returncode == 1
    assert "is not a version folder" in done.stderr


def test_a_loop_starts_rounds_by_groups_by_time_or_by_both(
    config: Path, store: StoreConfig, tiny_model_dir: Path
) -> None:
    settings = config.read_text()
    for group_id in ("g1", "g2", "g3"):
        add_group(store, tiny_model_dir, group_id, [0.0, 1.0])
    both = 'groups_per_round = 1\nmin_groups = 1\nloop_trigger = "both"\nloop_every_s = 6.0\ntensorboard = false\n'
    config.write_text(settings + both)
    done = weir("round", "--loop", "--max-rounds", "2", "--config", str(config))
    assert done.returncode == 0, done.stderr
    with connect(store) as sql:
        began = "SELECT CAST(metrics -> '$.timeline[0][1]' AS DOUBLE) FROM rounds ORDER BY round_id"
        first, second = (began_s for (began_s,) in sql.sql(began).fetchall())
    assert second - first >= 6.0 - 3.0  # the first step comes a little after the start of its round
    config.write_text(settings + 'min_groups = 5\nloop_trigger = "time"\ntensorboard = false\n')
    timed = weir("round", "--loop", "--max-rounds", "1", "--config", str(config))
    assert "round 3 → version 3" in timed.stdout, "one group is enough when the time has come"
