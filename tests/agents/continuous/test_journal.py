"""The state of a continuous run: what has ended never runs again, what was running does."""

from __future__ import annotations

from pathlib import Path

import pytest

from weir.agents.agent_task import AgentTask
from weir.agents.continuous.journal import RunJournal
from weir.agents.continuous.pressure import most_groups
from weir.agents.errors import OtherRun

TASKS = [AgentTask(task_id=name, prompt=name) for name in "abc"]


def opened(path: Path, tasks: list[AgentTask] = TASKS, seed: int = 0, samples: int = 2) -> RunJournal:
    return RunJournal(path, tasks, seed=seed, samples=samples)


def test_ended_groups_are_known_and_running_ones_are_named_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "state.jsonl"
    first = opened(path)
    for position in range(4):
        first.start(position, f"group_{position}")
    for position in (0, 1, 3):
        first.end(position)
    first.evaluate("7")
    with path.open("ab") as file:
        file.write(b'{"ended": 2')  # a kill in the middle of a write
    first._lock.close()  # what the kernel does for a killed process

    again = opened(path)
    assert [position in again for position in range(5)] == [True, True, False, True, False]
    assert (again.num_ended, again.interrupted, again.evaluated) == (3, ["group_2"], {"7"})
    again.start(2, "group_new")
    again.end(2)
    again.close()

    third = opened(path)
    assert (third.num_ended, third.interrupted) == (4, [])
    assert all(position in third for position in range(4))
    third.close()
    assert len(path.read_bytes().splitlines()) == 3  # head, position, evaluated version: it does not grow for ever


def test_two_processes_never_continue_the_same_run(tmp_path: Path) -> None:
    first = opened(tmp_path / "state.jsonl")
    with pytest.raises(OtherRun, match="another process"):
        opened(tmp_path / "state.jsonl")
    first.close()
    opened(tmp_path / "state.jsonl").close()


def test_other_tasks_seed_or_samples_are_refused(tmp_path: Path) -> None:
    opened(tmp_path / "state.jsonl").close()
    other = [*TASKS, AgentTask(task_id="d", prompt="d")]
    for changed in (lambda p: opened(p, tasks=other), lambda p: opened(p, seed=1), lambda p: opened(p, samples=3)):
        with pytest.raises(OtherRun, match="begun with other tasks, seed or samples"):
            changed(tmp_path / "state.jsonl")


@pytest.mark.parametrize(
    ("groups", "staleness", "training", "most"), [(4, 0, False, 4), (4, 0, True, 0), (4, 2, False, 12), (4, 2, True, 8)]
)
def test_the_bound_is_what_rounds_can_still_use(groups: int, staleness: int, training: bool, most: int) -> None:
    assert most_groups(groups, staleness, training=training) == most
