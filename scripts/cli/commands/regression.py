"""`weir regression`, also run after `weir sft`: compares first and new weights on the same tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weir.scripts.launch.resolve import first_weights
from weir.scripts.launch.settings import ConfigOption, Settings, load_settings, with_flags

if TYPE_CHECKING:
    from weir.kernel_eval.client import KernelTask
    from weir.trainer.regression.compare import Regression, RegressionConfig
    from weir.trainer.regression.task_answers import Question

SUFFIX = ".regression.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a regression run needs, checked before any work starts."""

    settings: Settings
    config_path: Path | None
    config: RegressionConfig
    tasks: list[KernelTask]
    engine_url: str | None  # None: an embedded one is started


def regression(
    before: Annotated[Path, typer.Argument(help="Hugging Face folder of the first weights.")],
    after: Annotated[Path, typer.Argument(help="Folder of the new weights.")],
    tasks: Annotated[Path, typer.Option(help="Folder (or file) of tasks; all are used.")],
    samples: Annotated[int | None, typer.Option(help="Answers per task.")] = None,
    bound: Annotated[float | None, typer.Option(help="How far a share may fall before it counts as worse.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the answers.")] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="URL of an idle engine, which loads both and keeps the second; default: one is started."),
    ] = None,
    fail_on_regression: Annotated[
        bool, typer.Option("--fail-on-regression", help="Exit with 1 where a share fell.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Compare new weights with the first ones on tasks.

    Counts compiled, correct and faster than the reference, as judged by the kernel-evaluation server.
    """
    given = {"samples": samples, "bound": bound, "seed": seed}
    settings = load_settings(config)
    before, after = first_weights(settings, before), first_weights(settings, after)
    setup = prepare(settings, config, tasks, engine, given)
    report(run(setup, before, after), after, fail=fail_on_regression)


def prepare(
    settings: Settings, config_path: Path | None, tasks: Path, engine_url: str | None, given: dict[str, Any]
) -> Setup:
    """Read the tasks and check judge and engine. Raises UsageError where one of them is missing."""
    from weir.agents.tasks import load_tasks
    from weir.scripts.launch.preflight import require_answer, require_judge
    from weir.trainer.regression.compare import RegressionConfig

    agents = settings.agents
    usual = RegressionConfig(max_tokens=agents.max_tokens, temperature=agents.temperature)
    setup = Setup(
        settings=settings,
        config_path=config_path,
        config=with_flags(usual, given, "weir regression"),
        tasks=load_tasks(tasks),
        engine_url=None if engine_url is None else engine_url.rstrip("/"),
    )
    require_judge(settings.kernel_eval.base_url, may_start=False)
    if setup.engine_url is not None:
        require_answer(
            f"{setup.engine_url}/model_info", "engine", "start it, or leave --engine out and have one started"
        )
    return setup


def run(setup: Setup, before: Path, after: Path) -> Regression:
    """Generate and judge both models' answers, one model after the other on one engine; returns the comparison."""
    from weir.trainer.regression.compare import compare
    from weir.trainer.regression.task_answers import Place, verdicts

    questions = ask(setup, after)
    judge = setup.settings.kernel_eval
    with _engine(setup, before) as url:
        place = Place(engine_url=url, kernel_eval_url=judge.base_url, kernel_eval_key=judge.api_key)
        of_before, of_after = (verdicts(folder, questions, place, setup.config) for folder in (before, after))
    return compare(of_before, of_after, setup.config.bound)


def ask(setup: Setup, model: Path) -> list[Question]:
    """The tasks as an agent's first prompts, rendered as the proxy renders them."""
    from weir.agents.kernel_agent import first_message
    from weir.proxy.rendering.opening import open_rendering
    from weir.trainer.regression.task_answers import Question

    rendering = open_rendering(model, setup.settings.model.name, setup.settings.proxy)
    questions = []
    for task in setup.tasks:
        prompt = rendering.render([{"role": "user", "content": first_message(task)}], None)

        def text_of(ids: list[int], prompt: list[int] = prompt) -> str:
            return rendering.parse(ids, prompt, None, False, "regression").content

        questions.append(Question(task=task, prompt_ids=prompt, stop_ids=rendering.stop_ids, text_of=text_of))
    return questions


def report(found: Regression, after: Path, *, fail: bool) -> None:
    """Save the comparison beside the new weights' folder, print it, and report regressions."""
    import msgspec
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    folder = after.absolute()
    file = folder.with_name(folder.name + SUFFIX)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    table = Table(
        box=SIMPLE_HEAD, title=f"{found.num_answers} answers to {found.num_tasks} tasks", title_justify="left"
    )
    table.add_column("figure")
    for name in ("first weights", "new weights"):
        table.add_column(name, justify="right")
    for name in dict.fromkeys((*found.before, *found.after)):
        table.add_row(name, *(f"{one[name]:.2f}" if name in one else "" for one in (found.before, found.after)))
    Console().print(table)
    typer.echo(f"{found.sentence}; {file}")
    if found.worse and fail:
        raise typer.Exit(1)


@contextmanager
def _engine(setup: Setup, model: Path) -> Iterator[str]:
    """Yield the URL of the given engine, or of one that runs during the block."""
    from weir.scripts.launch.fleet import weir_server
    from weir.scripts.launch.servers import free_port, running

    if setup.engine_url is not None:
        yield setup.engine_url
        return
    port = free_port()
    config = ["--config", str(setup.config_path)] if setup.config_path else []
    arguments = ["engine", "--model", str(model), "--port", str(port), "--host", "127.0.0.1", *config]
    url = f"http://127.0.0.1:{port}"
    engine = weir_server("regression-engine", arguments, f"{url}/health", setup.settings.store.folder / "logs")
    with running([engine]):
        yield url
