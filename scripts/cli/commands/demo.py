"""`weir demo`: the whole loop from nothing, on a CPU, in minutes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from weir.scripts.demo_loop.progress import Progress, Say, expected_s
from weir.scripts.launch.errors import UsageError

KERNEL_ROUNDS = 70

QUERIES = (
    (
        "Did the model get better? Reward and correctness by the weights that answered.",
        """select version_max // 10 * 10 as from_version, count(*) as answers, round(avg(raw_reward), 2) as reward,
       round(avg(correct::int), 2) as correct
from evaluations join calls using (call_id)
group by all order by from_version""",
    ),
    (
        "What went wrong with the answers that were not right?",
        """select fault, count(*) as answers
from evaluations where fault is not null group by all order by answers desc limit 6""",
    ),
    (
        "Which answers were begun by one set of weights and finished by another?",
        """select call_id, version_min, version_max, num_output_tokens, round(held_ms) as held_ms
from calls where num_versions > 1 order by held_ms desc limit 5""",
    ),
)


def demo(
    folder: Annotated[Path, typer.Option("--dir", help="Folder that everything is made in.")] = Path("demo-run"),
    seed: Annotated[int, typer.Option(help="Seed of corpus, model, tasks and sampling.")] = 0,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Training rounds; default: 70, and with --model as many as it needs.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Train a pretrained language model instead: smollm2-135m, or a Hugging Face folder."),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="With --model: embedded, or sglang ([engine] python by WEIR_ENGINE__PYTHON).")
    ] = "embedded",
    algorithm: Annotated[str, typer.Option(help="Algorithm of the rounds, as trainer.algorithm has them.")] = "dapo",
    controller: Annotated[
        bool,
        typer.Option("--train", help="One controller (`weir train`) takes engines for training, in place of rounds."),
    ] = False,
    shuffle_rewards: Annotated[
        bool,
        typer.Option(help="A control: rewards are dealt out at random within each group, so nothing can be learned."),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the figures as one JSON object on the last line.")
    ] = False,
) -> None:
    """Let a small model learn to write Triton kernels, on a CPU.

    With --model, a language model learns to look things up instead. Makes the model, lets agents work with it, trains
    on what was recorded, shows what it learned. Exit status 1 when it did not learn.
    """
    started = time.monotonic()

    def say(line: str) -> None:
        typer.echo(f"[{time.monotonic() - started:4.0f} s] {line}")

    if model is None:
        _kernel_demo(folder, seed, rounds or KERNEL_ROUNDS, algorithm, shuffle_rewards, controller, json, say)
    elif controller:
        raise UsageError("--train goes with the demo of kernels; leave --model out")
    else:
        _language_demo(folder, seed, rounds, model, engine, shuffle_rewards, json, say)


def _kernel_demo(
    folder: Path,
    seed: int,
    rounds: int,
    algorithm: str,
    shuffle_rewards: bool,
    controller: bool,
    json: bool,
    say: Say,
) -> None:
    with Progress(expected_s(rounds), say) as progress:
        progress.say("Loading PyTorch and transformers …")
        from weir.scripts.cli.report.html import write_report
        from weir.scripts.demo_loop.run import DemoOptions, goal_of, known_algorithm, run_demo
        from weir.scripts.launch.errors import CommandError
        from weir.scripts.launch.settings import load_settings
        from weir.store.reader import connect

        options = DemoOptions(
            folder=folder,
            seed=seed,
            rounds=rounds,
            algorithm=known_algorithm(algorithm),
            shuffle_rewards=shuffle_rewards,
            controller=controller,
        )
        result = run_demo(options, progress)
        settings = load_settings(folder / "weir.toml")
        page = write_report(settings.store, folder / "report.html")
    with connect(settings.store) as db:
        for question, query in QUERIES:
            typer.echo(f"\n{question}\n{query}\n{db.sql(query)}")
    typer.echo(
        f"\nMean reward {result.reward_first:.2f} → {result.reward_last:.2f}; held-out right "
        f"{result.heldout_before:.0%} → {result.heldout_after:.0%}; {result.calls} calls, "
        f"{result.calls_spanning_versions} of them across a weight update, {result.versions} versions, "
        f"{result.seconds:.0f} s.\nReport: {page}\n"
        f"{_next_steps(folder / 'weir.toml')}"
    )
    if json:
        typer.echo(result.as_json())
    if not result.learned:
        goal = goal_of(algorithm)
        raise CommandError(
            f"the model did not learn: the reward must rise by {goal.reward_gain} and held-out correctness "
            f"{goal.heldout_factor:g}-fold; the store with every call is in {settings.store.folder}"
        )


def _next_steps(config: Path) -> str:
    from weir.scripts.launch.settings import load_settings

    page = load_settings(config).ui
    return (
        f"Look:   weir ui --config {config}, and open http://{page.host}:{page.port}\n"
        f"Go on:  weir up --config {config}   ·   weir sql --config {config}"
    )


def _language_demo(
    folder: Path, seed: int, rounds: int | None, model: str, engine: str, shuffle_rewards: bool, json: bool, say: Say
) -> None:
    say("Loading PyTorch and transformers …")
    from weir.scripts.demo_loop.language import run
    from weir.scripts.launch.errors import CommandError

    options = run.LanguageDemoOptions(
        folder=folder,
        model=model,
        engine=run.known_engine(engine),
        seed=seed,
        rounds=rounds or run.ROUNDS,
        shuffle_rewards=shuffle_rewards,
    )
    with Progress(run.expected_s(options.rounds), say) as progress:
        result = run.run_language_demo(options, progress)
    shares = ", ".join(f"{phase} {share:.0%}" for phase, share in result.round_share.items())
    typer.echo(
        f"\nHeld-out reward {result.before.reward:.2f} → {result.after.reward:.2f}; sessions that answer "
        f"{result.before.answered:.0%} → {result.after.answered:.0%}, of these right "
        f"{result.before.right_of_answered:.0%} → {result.after.right_of_answered:.0%}; {result.calls} calls, "
        f"{result.calls_spanning_versions} of them across a weight update, {result.versions} versions, "
        f"{result.seconds:.0f} s (rounds: {shares}).\n"
        f"{_next_steps(folder / 'weir.toml')}"
    )
    if json:
        typer.echo(result.as_json())
    if not result.learned:
        raise CommandError(
            f"the model did not learn: the held-out reward must rise by {run.GOAL}; the store with every call is in "
            f"{folder / 'store'}"
        )
