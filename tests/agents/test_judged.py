"""What the kernel-eval server says of the right kernels, the solutions of the hand-written tasks and the corpus."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from pathlib import Path

import pytest
from support_servers import find_free_port, start_server

from weir.agents.corpus import draw_kernel, make_corpus
from weir.agents.family import family_tasks, members
from weir.agents.tasks import load_tasks
from weir.kernel_eval.client import EvalResult, KernelEvalClient, KernelTask, candidate_source, feedback

COMMAND = "import typer; from weir.scripts.cli.commands.servers import kernel_eval; typer.run(kernel_eval)"
EXAMPLES = Path(__file__).parents[2] / "agents" / "examples"
SOLUTIONS = Path(__file__).parent / "solutions"
TASKS = {task.task_id: task for task in family_tasks()}


@pytest.fixture(scope="module")
def judge_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = find_free_port()
    log_path = tmp_path_factory.mktemp("judge") / "kernel-eval.log"
    server = start_server([sys.executable, "-c", COMMAND, "--port", str(port)], port=port, log_path=log_path)
    yield server.url
    server.stop()


def judged(url: str, answers: Sequence[tuple[KernelTask, str]]) -> list[EvalResult]:
    async def judge_all() -> list[EvalResult]:
        async with aclosing(KernelEvalClient(url)) as client:
            return await asyncio.gather(
                *(client.evaluate(task, candidate_source(task, answer)) for task, answer in answers)
            )

    return asyncio.run(judge_all())


def test_the_solution_of_every_hand_written_task_is_judged_correct(judge_url: str) -> None:
    tasks = load_tasks(EXAMPLES)
    assert {path.stem for path in SOLUTIONS.glob("*.py")} == {task.task_id for task in tasks}
    answers = [
        (task, f"Here it is.\n```python\n{(SOLUTIONS / task.task_id).with_suffix('.py').read_text()}```")
        for task in tasks
    ]
    results = judged(judge_url, answers)
    assert {task.task_id: feedback(r) for task, r in zip(tasks, results, strict=True) if r.raw_reward != 1.0} == {}


def test_right_kernels_of_every_operation_are_judged_correct(judge_url: str) -> None:
    chosen = {(member.kind, member.op, member.inner): member for member in members()}.values()
    kernels = [draw_kernel(member, random.Random(0), faults=0.0)[0] for member in chosen]
    results = judged(
        judge_url, [(TASKS[member.task_id], kernel) for member, kernel in zip(chosen, kernels, strict=True)]
    )
    wrong = {m.task_id: feedback(r) for m, r in zip(chosen, results, strict=True) if r.raw_reward != 1.0}
    assert wrong == {}


def test_about_a_third_of_the_corpus_is_judged_correct(judge_url: str) -> None:
    examples = make_corpus(0, 120)
    results = judged(judge_url, [(TASKS[e.task_id], e.messages[1].content) for e in examples])
    share = sum(result.correct for result in results) / len(results)
    assert 0.25 <= share <= 0.45
    rewards = {result.raw_reward for result in results}
    assert rewards == {0.0, 0.1, 0.3, 1.0}


def test_the_feedback_of_second_turns_is_what_the_judge_says(judge_url: str) -> None:
    two_turns = [example for example in make_corpus(0, 400) if len(example.messages) == 4][:60]
    results = judged(judge_url, [(TASKS[e.task_id], e.messages[1].content) for e in two_turns])
    said = [feedback(result).splitlines()[0] for result in results]
    assert not any(result.correct for result in results)
    expected = [example.messages[2].content for example in two_turns]
    faults = [(a.partition(":")[0], b.partition(":")[0]) for a, b in zip(said, expected, strict=True)]
    assert sum(a == b for a, b in faults) / len(faults) > 0.9
    shapes = [(shape_of(a), shape_of(b)) for a, b in zip(said, expected, strict=True)]
    assert sum(a == b for a, b in shapes) / len(shapes) > 0.85


def shape_of(text: str) -> str:
    """The text without its numbers."""
    return "".join(character for character in text if character not in "0123456789.-+e")
