"""`weir init` writes a file that both dry runs accept, for every scenario, and refuses what cannot fit."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from weir.scripts.cli.main import app
from weir.scripts.launch.errors import UsageError
from weir.scripts.models.scenario import DoesNotFitScenario

CONFIGS = Path(__file__).parents[3] / "recipes" / "configs"


def init(out: Path, scenario: str, model: str, gib: float, gpus: int = 8) -> Result:
    arguments = ["--scenario", scenario, "--model", str(CONFIGS / model), "--out", str(out)]
    return CliRunner().invoke(app, ["init", *arguments, "--device-gib", str(gib), "--gpus", str(gpus)])


@pytest.mark.parametrize(
    ("scenario", "model", "gib", "parts"),
    [
        ("cpu", "SmolLM2-135M", 8, {"engine": {"kind": "embedded", "device": "cpu"}, "trainer": {"lr": 1e-5}}),
        ("one-gpu", "Qwen3-0.6B", 48, {"placement": {"colocated": True}, "trainer": {"lr": 3e-6}}),
        ("node", "Qwen3-8B", 79, {"engine": {"kind": "sglang"}, "trainer": {"lr": 1e-6, "precision": "bfloat16"}}),
        ("cluster", "Qwen3-30B-A3B", 139, {"engine": {"kind": "sglang", "count": 0}, "trainer": {"lr": 1e-6}}),
    ],
)
def test_both_dry_runs_accept_the_file_of_every_scenario(
    scenario: str, model: str, gib: float, parts: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    out = tmp_path / "weir.toml"
    made = init(out, scenario, model, gib)
    assert made.exit_code == 0, made.output + str(made.exception)
    text = out.read_text()
    values = tomllib.loads(text)
    for section, wanted in parts.items():
        assert wanted.items() <= values[section].items()
    lines = text.splitlines()
    settings = [place for place, line in enumerate(lines) if " = " in line and not line.startswith("#")]
    assert settings and all(lines[place - 1].startswith("# ") for place in settings), "a setting without its reason"
    checked = CliRunner().invoke(app, ["up", "--check", "--settings-only", "--config", str(out)])
    assert checked.exit_code == 0, checked.output + str(checked.exception)
    room = text.partition("--device-gib ")[2].partition("\n")[0]
    planned = CliRunner().invoke(app, ["round", "--plan", "--config", str(out), "--device-gib", room])
    assert planned.exit_code == 0, planned.output + str(planned.exception)


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    out = tmp_path / "weir.toml"
    out.write_text("mine")
    found = init(out, "cpu", "SmolLM2-135M", 8)
    assert isinstance(found.exception, UsageError) and "is not overwritten" in str(found.exception)
    assert out.read_text() == "mine"


@pytest.mark.parametrize(
    ("scenario", "model", "gib", "remedy"),
    [
        ("one-gpu", "Qwen3-8B", 79, "--scenario node"),
        ("node", "Qwen3-30B-A3B", 24, "--scenario cluster"),
        ("cluster", "Qwen3-30B-A3B", 79, "more GPUs"),
    ],
)
def test_what_cannot_fit_is_refused_with_what_would(
    scenario: str, model: str, gib: float, remedy: str, tmp_path: Path
) -> None:
    found = init(tmp_path / "weir.toml", scenario, model, gib)
    assert isinstance(found.exception, DoesNotFitScenario) and remedy in str(found.exception)
    assert not (tmp_path / "weir.toml").exists()


def test_a_scenario_and_a_folder_that_do_not_exist_are_named(tmp_path: Path) -> None:
    found = init(tmp_path / "weir.toml", "laptop", "SmolLM2-135M", 8)
    assert isinstance(found.exception, UsageError) and "take cpu, one-gpu, node or cluster" in str(found.exception)
    found = init(tmp_path / "weir.toml", "cpu", "Nobody-1B", 8)
    assert found.exception is not None and "config.json" in str(found.exception)
    found = init(tmp_path / "nowhere" / "weir.toml", "cpu", "SmolLM2-135M", 8)
    assert isinstance(found.exception, UsageError) and "nowhere" in str(found.exception)
    assert not list(tmp_path.iterdir())
