"""The regression check: metrics of old and new weights on the same tasks, regressions, and the whole run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from support_engine_relay import engine_relay
from support_model import make_tiny_model
from support_rounds import Judge
from support_servers import EngineFactory
from typer.testing import CliRunner

from weir.scripts.cli.main import app
from weir.scripts.launch.errors import UsageError
from weir.store.catalog.rows import EvaluationRow
from weir.trainer.errors import PublishFailed, TrainerUsageError
from weir.trainer.regression.compare import Verdicts, compare


def verdicts(*of_tasks: list[tuple[bool, bool, float | None]], unsupported: int = 0) -> Verdicts:
    """Compiled, correct and speedup of each answer, task by task."""
    rows = [
        EvaluationRow(
            call_id=f"{task}-{i}",
            session_id="",
            group_id=f"task {task}",
            round_id=None,
            content_hash="",
            compiled=compiled,
            correct=correct,
            fault=None if correct else "output_mismatch",
            raw_reward=0.0,
            result={"speedup": speedup},
            created_us=0,
        )
        for task, answers in enumerate(of_tasks)
        for i, (compiled, correct, speedup) in enumerate(answers)
    ]
    return Verdicts(rows=rows, num_unsupported=unsupported)


GOOD, SLOW, WRONG, BROKEN = (True, True, 2.5), (True, True, 0.5), (True, False, None), (False, False, None)


def test_figures_are_means_over_tasks_and_what_fell_by_more_than_the_bound_is_worse() -> None:
    before = verdicts([GOOD, WRONG], [SLOW, SLOW])
    after = verdicts([GOOD, GOOD], [WRONG, BROKEN], unsupported=3)
    found = compare(before, after, 0.2)
    assert found.before == {"compile@1": 1.0, "correct@1": 0.75, "fast_1": 0.5, "fast_1.5": 0.5, "fast_2": 0.5}
    assert found.after == {"compile@1": 0.75, "correct@1": 0.5, "fast_1": 0.5, "fast_1.5": 0.5, "fast_2": 0.5}
    assert found.worse == ["compile@1", "correct@1"]
    assert found.sentence == (
        "regression: compile@1 fell from 1.00 to 0.75, correct@1 fell from 0.75 to 0.50 (bound 0.2)"
    )
    assert (found.faults["after"], found.unsupported) == ({"output_mismatch": 2}, {"before": 0, "after": 3})
    assert compare(before, after, 0.25).sentence == "no regression"


def test_speed_that_is_no_longer_measured_has_fallen() -> None:
    found = compare(verdicts([GOOD]), verdicts([WRONG]), 0.5)
    assert found.worse == ["correct@1", "fast_1", "fast_1.5", "fast_2"]


def test_answers_that_nobody_can_judge_are_no_figures() -> None:
    with pytest.raises(TrainerUsageError, match="none of 4 answers could be judged"):
        compare(verdicts([GOOD]), verdicts(unsupported=4), 0.05)


def weir(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command."""
    command = [sys.executable, "-m", "weir.scripts.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def config(tmp_path: Path, judge: Judge) -> Path:
    """A weir.toml whose kernel-evaluation server is the scripted one."""
    host, port = judge.url.removeprefix("http://").split(":")
    file = tmp_path / "weir.toml"
    file.write_text(
        f'[store]\nroot = "{tmp_path / "store"}"\n[kernel_eval]\nhost = "{host}"\nport = {port}\n'
        "[agents]\nmax_tokens = 24\n[proxy]\nthinking = false\n"
    )
    return file


def test_after_a_cold_start_first_and_new_weights_answer_the_same_tasks(
    config: Path, tmp_path: Path, tiny_model_dir: Path, judge: Judge
) -> None:
    """The judge is scripted: what the corpus teaches is right, everything else is not."""
    tasks, data, out = tmp_path / "tasks.jsonl", tmp_path / "data.jsonl", tmp_path / "new"
    asked = [{"task_id": f"t{i}", "prompt": f"number {i}", "reference_src": f"# {i}"} for i in range(3)]
    asked = [task | {"candidate_template": "{kernel}"} for task in asked]
    tasks.write_text("".join(json.dumps(task) + "\n" for task in asked))
    messages = [[("user", f"number {i}"), ("assistant", "reward=1.0")] for i in range(3)]
    lines = [{"messages": [{"role": role, "content": text} for role, text in chat]} for chat in messages]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    trained = weir(
        *("sft", "--model", str(tiny_model_dir), "--data", str(data), "--out", str(out), "--epochs", "60"),
        *("--lr", "5e-3", "--tasks", str(tasks), "--fail-on-regression", "--config", str(config)),
    )
    assert trained.returncode == 0, trained.stderr
    assert "12 answers to 3 tasks" in trained.stdout
    assert "no regression" in trained.stdout
    kept = json.loads((tmp_path / "new.regression.json").read_text())
    assert (kept["before"]["correct@1"], kept["after"]["correct@1"]) == (0.0, 1.0)
    assert len(judge.candidates) == 12 + 3  # equal answers to a task are judged once
    back = weir(
        *("regression", str(out), str(tiny_model_dir), "--tasks", str(tasks), "--samples", "1"),
        *("--fail-on-regression", "--config", str(config)),
    )
    assert back.returncode == 1, back.stderr
    assert "regression: compile@1 fell from 1.00 to 0.00, correct@1 fell from 1.00 to 0.00" in back.stdout


def test_an_engine_that_is_named_answers_with_both_weights_and_trouble_with_it_is_named(
    config: Path, tmp_path: Path, tiny_model_dir: Path, engine_server: EngineFactory
) -> None:
    other, smaller = make_tiny_model(tmp_path / "other", seed=1), make_tiny_model(tmp_path / "smaller", vocab_size=400)
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({"task_id": "t", "prompt": "p", "reference_src": "# r"}) + "\n")

    def regression(after: Path, engine_url: str) -> Result:
        given = ["--tasks", str(tasks), "--engine", engine_url, "--config", str(config)]
        return CliRunner().invoke(app, ["regression", str(tiny_model_dir), str(after), *given])

    engine = engine_server()
    engine.post("/pause_generation", {"mode": "abort"})  # as a publish leaves one that did not load
    with engine_relay(engine.url) as relay:
        done = regression(other, relay.url + "/")
        assert (done.exit_code, "4 answers to 1 tasks" in done.output) == (0, True), done.output
        assert (tmp_path / "other.regression.json").exists()
        info = engine.get("/model_info")
        assert (info["model_path"], info["weight_version"]) == (str(other), "regression"), "no version is called that"

        refused = regression(smaller, relay.url)
        assert isinstance(refused.exception, PublishFailed)
        assert f"the engine at {relay.url} did not answer the tasks" in str(refused.exception)
        assert "the old ones stay" in str(refused.exception)

        def dies(path: str, body: Any) -> Any:
            if path == "/generate":
                engine.kill()
            return body

        relay.of_request = dies
        dead = regression(other, relay.url)
        assert isinstance(dead.exception, PublishFailed)
        assert f"the engine at {relay.url} did not answer the tasks: POST {relay.url}/generate" in str(dead.exception)
    for url, after, why in (
        (engine.url, other, f"no engine at {engine.url}"),
        ("nowhere", other, "no engine at nowhere"),
        (engine.url, tmp_path, "not a Hugging Face model folder"),
    ):
        wrong = regression(after, url)
        assert isinstance(wrong.exception, UsageError)
        assert why in str(wrong.exception)


def test_without_a_judge_nothing_is_trained(config: Path, tmp_path: Path, tiny_model_dir: Path, judge: Judge) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({"task_id": "t", "prompt": "p", "reference_src": "# r"}) + "\n")
    judge.out_of_order = True
    done = weir(
        *("sft", "--model", str(tiny_model_dir), "--data", str(tasks), "--out", str(tmp_path / "new")),
        *("--tasks", str(tasks), "--config", str(config)),
    )
    assert (done.returncode, "no kernel-evaluation server at http" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "new").exists()
