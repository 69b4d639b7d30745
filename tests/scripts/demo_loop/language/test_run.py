"""The demo with a language model as a whole, on a tiny random one, which has nothing to learn from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from weir.agents.runner import SessionOutcome
from weir.scripts.cli.main import app
from weir.scripts.demo_loop.language.directory import question_tasks
from weir.scripts.demo_loop.language.run import (
    LanguageDemoOptions,
    expected_s,
    known_engine,
    round_share,
    run_language_demo,
    summary,
)
from weir.scripts.demo_loop.progress import Progress
from weir.scripts.launch.errors import CommandError, UsageError


def test_the_whole_loop_runs_on_a_model_folder(tmp_path: Path, tiny_model_dir: Path) -> None:
    options = LanguageDemoOptions(
        folder=tmp_path / "run", model=str(tiny_model_dir), rounds=2, heldout_questions=8, warm_up_sessions=8
    )
    with Progress(expected_s(2), lambda _: None) as progress:
        result = run_language_demo(options, progress)
    figures = json.loads(result.as_json())
    assert figures["learned"] is False
    assert figures["before"]["sessions"] == figures["after"]["sessions"] == 8
    assert len(figures["rewards"]) == 2
    assert figures["calls"] >= 2 * 8 + 2 * 8 * 8
    assert sum(figures["round_share"].values()) == pytest.approx(1.0, abs=0.01)
    assert (tmp_path / "run" / "store" / "versions" / "00000002" / "model.safetensors").exists()
    with pytest.raises(CommandError, match="is not empty"):
        run_language_demo(options, progress)


def test_form_and_content_are_counted_apart() -> None:
    person, boss = (next(task for task in question_tasks("heldout") if task.family == f) for f in ("person", "boss"))

    def outcome(task_id: str, *, answered: bool, correct: bool) -> SessionOutcome:
        return SessionOutcome(session_id="s", task_id=task_id, info={"answered": answered, "correct": correct})

    outcomes = [
        outcome(person.task_id, answered=True, correct=True),
        outcome(person.task_id, answered=False, correct=False),
        outcome(boss.task_id, answered=True, correct=False),
        outcome(boss.task_id, answered=True, correct=False),
    ]
    measured = summary([person, boss], outcomes)
    assert (measured.reward, measured.answered) == (0.25, 0.75)
    assert measured.right_of_answered == pytest.approx(1 / 3)
    assert (measured.reward_person, measured.reward_boss) == (0.5, 0.0)


def test_what_no_round_accounts_for_was_waiting_for_sessions() -> None:
    rounds = [{"train": 3.0, "judge": 0.5, "publish": 1.0, "checkpoint": 0.5, "read": 1.0}] * 2
    shares = round_share(rounds, 20.0)
    assert shares == pytest.approx({"rollout": 0.4, "judging": 0.05, "training": 0.3, "publishing": 0.15, "rest": 0.1})


def test_a_wrong_engine_or_model_is_named(tmp_path: Path) -> None:
    assert known_engine("sglang") == "sglang"
    with pytest.raises(UsageError, match="there is no engine vllm"):
        known_engine("vllm")
    answer = CliRunner().invoke(app, ["demo", "--model", str(tmp_path / "none"), "--dir", str(tmp_path / "run")])
    assert answer.exit_code != 0
