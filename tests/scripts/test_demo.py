"""The demo's verdict and what it makes; the whole of it is run by `./scripts/demo`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from weir.agents.tasks import load_tasks
from weir.scripts.demo import DemoOptions, DemoResult, has_learned, prepare
from weir.scripts.errors import CommandError
from weir.scripts.settings import load_settings


@pytest.mark.parametrize(
    ("rewards", "heldout", "learned"),
    [
        ((0.3, 0.55), (0.25, 0.5), True),
        ((0.3, 0.54), (0.25, 0.5), False),
        ((0.3, 0.55), (0.25, 0.49), False),
        ((0.3, 0.9), (0.0, 0.0), False),
        ((0.3, 0.9), (0.0, 0.2), True),
    ],
)
def test_learning_means_a_rise_in_reward_and_twice_the_heldout_correctness(
    rewards: tuple[float, float], heldout: tuple[float, float], learned: bool
) -> None:
    assert has_learned(*rewards, *heldout) is learned


def test_the_figures_are_one_line_of_json_with_the_documented_keys() -> None:
    figures = json.loads(
        DemoResult(
            learned=True,
            reward_first=0.1,
            reward_last=0.5,
            heldout_before=0.2,
            heldout_after=0.6,
            seconds=1.23456,
            versions=3,
            calls=4,
            calls_spanning_versions=1,
            seed=0,
        ).as_json()
    )
    assert {"reward_first", "reward_last", "heldout_before", "heldout_after", "seconds"} <= set(figures)
    assert {"versions", "calls", "calls_spanning_versions"} <= set(figures)
    assert figures["seconds"] == 1.2346


def test_the_demo_makes_a_folder_that_the_other_commands_can_go_on_with(tmp_path: Path) -> None:
    said: list[str] = []
    config = prepare(DemoOptions(folder=tmp_path / "run"), said.append)
    settings = load_settings(config)
    assert (tmp_path / "run" / "model" / "model.safetensors").exists()
    assert {task.split for task in load_tasks(tmp_path / "run" / "tasks")} == {"train", "heldout"}
    assert settings.engine.count == 2 and settings.model.name == "weir"
    assert "1.7M parameters" in said[0]


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(CommandError, match="is not empty; name another folder with --dir"):
        prepare(DemoOptions(folder=tmp_path), lambda _: None)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
