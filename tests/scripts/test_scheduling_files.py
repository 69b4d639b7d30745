"""The files for cron and systemd in docs/scheduling name existing commands and options."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from weir.scripts.cli.main import app

FOLDER = Path(__file__).parents[2] / "docs" / "scheduling"
CRON_COMMAND = re.compile(r"^[\d*][^#]*&& weir (.*?) >>", re.MULTILINE)


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read(FOLDER / name)
    return parser


def commands() -> list[str]:
    found = CRON_COMMAND.findall((FOLDER / "weir.cron").read_text())
    services = [unit(file.name)["Service"]["ExecStart"] for file in sorted(FOLDER.glob("*.service"))]
    return found + [line.split("/weir ", 1)[1] for line in services]


def test_the_files_start_rounds_once_by_timer_by_loop_and_from_cron() -> None:
    assert commands() == ["round", "store compact", "round", "round --loop"]
    assert (FOLDER / "weir-round.service").exists(), "the timer starts the service of its own name"
    assert unit("weir-round.timer")["Timer"]["Persistent"] == "true"


@pytest.mark.parametrize("command", sorted(set(commands())))
def test_every_command_takes_its_options(command: str) -> None:
    assert CliRunner().invoke(app, [*command.split(), "--help"]).exit_code == 0
