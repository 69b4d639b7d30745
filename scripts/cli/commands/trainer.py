"""`weir round`, `weir train`, `weir publish`, `weir rollback`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.resolve import chat_renderer, first_weights, see_training_gpus, trainer_config
from weir.scripts.launch.settings import ConfigOption, Settings, existing_store, load_settings

if TYPE_CHECKING:
    from weir.trainer.rounds.claims import ClaimedGroup, ClaimedRound
    from weir.trainer.trainer import Trainer


def round_(
    loop: Annotated[bool, typer.Option("--loop", help="Run rounds repeatedly, waiting for groups.")] = False,
    max_rounds: Annotated[int | None, typer.Option(min=1, help="With --loop: end after this many rounds.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what the round would do, and change nothing.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print memory and work of a round by the settings, and claim nothing.")
    ] = False,
    device_gib: Annotated[
        float | None, typer.Option(min=0.1, help="With --plan: memory of a device; default: that of this machine's.")
    ] = None,
    replay: Annotated[
        int | None,
        typer.Option("--replay", help="Repeat this past round, and report whether the result is bit-identical."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for a running round instead of exiting.")] = False,
    model: Annotated[Path | None, typer.Option(help="Hugging Face folder of the first weights.")] = None,
    config: ConfigOption = None,
) -> None:
    """Run one training round over finished groups.

    Judges, trains, checkpoints, publishes. For cron: if no group is ready or another round is
    running, it prints a line and exits.
    """
    if loop + dry_run + plan + (replay is not None) > 1:
        raise UsageError("--loop, --dry-run, --plan and --replay exclude each other: give one of them")
    if device_gib is not None and not plan:
        raise UsageError("--device-gib requires --plan; a round uses the device that it finds")
    if max_rounds is not None and not loop:
        raise UsageError("--max-rounds requires --loop; without it one round is run")
    settings = load_settings(config)
    if plan:
        _plan(settings, model, device_gib)
        return
    if dry_run or replay is not None:
        existing_store(None, config)  # only a round may make one
    trainer = _trainer(settings, model)
    try:
        if dry_run:
            planned = trainer.plan()
            typer.echo(_too_few(trainer) if planned is None else _plan_text(planned))
        elif replay is not None:
            _replay(trainer, replay)
        elif loop:
            _run_rounds(trainer, max_rounds)
        else:
            _run_one_round(trainer, wait=wait)
    finally:
        trainer.close()


def train(
    tasks: Annotated[
        Path, typer.Option(help="Folder (or file) of tasks: *.toml, *.jsonl, *.py in KernelBench's form.")
    ],
    rounds: Annotated[int | None, typer.Option(min=1, help="End after this many rounds; default: never.")] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="Sessions per group.")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Concurrent sessions.")] = None,
    split: Annotated[str, typer.Option(help="Which tasks: train, heldout or all.")] = "train",
    agent: Annotated[str | None, typer.Option(help="Import path of the agent, module:function.")] = None,
    agent_command: Annotated[str | None, typer.Option(help="Command line of an agent; one process a session.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the order of the tasks.")] = 0,
    config: ConfigOption = None,
) -> None:
    """Generate and train without end, by one process.

    In place of `weir run --continuous` and of `weir round` by cron: engines of section [cluster] generate and are
    taken for training in turn, as its policy says. Servers run already (`weir up`). May be killed and started again.
    """
    from weir.scripts.live.command import run_controller

    given = {"samples": samples, "concurrency": concurrency, "agent": agent, "command": agent_command}
    changes = {name: value for name, value in given.items() if value is not None}
    settings = load_settings(config)
    report = run_controller(settings, config, tasks, split=split, seed=seed, rounds=rounds, changes=changes)
    typer.echo(report)


def publish(
    folder: Annotated[Path, typer.Argument(help="Version folder, or a Hugging Face folder of the same model.")],
    config: ConfigOption = None,
) -> None:
    """Bring a weight version to every engine, through the gate.

    It can be repeated. A plain Hugging Face folder is copied and becomes the newest version, from
    which the next round continues.
    """
    from weir.trainer.rounds.adopt import is_plain
    from weir.trainer.versions.stored import make_whole
    from weir.trainer.versions.version_folder import verify

    from_elsewhere = is_plain(folder)
    if not from_elsewhere:
        make_whole(folder)
        verify(folder)
    settings = load_settings(config)
    if not trainer_config(settings).engine_urls:
        raise UsageError(
            "no engine to publish to: [engine] has none and no router answers that lists some; start them with "
            "`weir up`, or name them by [engine] urls or [trainer] engine_urls in weir.toml"
        )
    trainer = _trainer(settings, (settings.model.path or folder) if from_elsewhere else folder)
    try:
        report = trainer.adopt(folder) if from_elsewhere else trainer.publish(folder)
    finally:
        trainer.close()
    typer.echo(f"published in {report.seconds:.1f} s")
    if report.failed:
        raise typer.Exit(1)


def rollback(
    version: Annotated[int, typer.Argument(help="Version whose weights are published again.")],
    config: ConfigOption = None,
) -> None:
    """Go back to the weights of an earlier version.

    They are published under a new number, from which the next round continues. Later versions stay in the store.
    """
    from rich.console import Console

    from weir.trainer.trainer import Trainer

    settings = load_settings(config)
    store = existing_store(None, config)
    model = settings.model.path or store.folder  # nothing is trained
    trainer = Trainer(trainer_config(settings), store, model_path=model, console=Console())
    try:
        _, report = trainer.roll_back(version)
    finally:
        trainer.close()
    if report.failed:
        raise typer.Exit(1)


def _run_one_round(trainer: Trainer, *, wait: bool) -> None:
    from weir.trainer.errors import RoundBusy

    trainer.comes_back = False
    try:
        report = trainer.run_round(wait=wait)
    except RoundBusy as busy:
        typer.echo(str(busy))
        return
    if report is None:
        typer.echo(_too_few(trainer))
    elif report.published.failed:
        raise typer.Exit(1)


def _run_rounds(trainer: Trainer, max_rounds: int | None) -> None:
    """Run rounds as the settings' trigger decides. Where a server is away, the round stays open and is retried."""
    from weir.trainer.errors import JudgeUnavailable, PublishFailed, SwitchFailed

    config = trainer.config
    every_s = 0.0 if config.loop_trigger == "groups" else config.loop_every_s
    if config.loop_trigger == "time":
        trainer.config = config.model_copy(update={"min_groups": 1})
    done, printed, due = 0, "", time.monotonic()
    while max_rounds is None or done < max_rounds:
        time.sleep(max(due - time.monotonic(), 0.0))
        started = time.monotonic()
        try:
            report = trainer.run_round(wait=True)
            why = "waiting for groups"
        except (JudgeUnavailable, PublishFailed, SwitchFailed) as error:
            report, why = None, str(error)
        if report is not None:
            done, printed, due = done + 1, "", started + every_s
            continue
        if why != printed:
            typer.echo(why)
            printed = why
        due = time.monotonic() + config.loop_poll_s


def _trainer(settings: Settings, model: Path | None) -> Trainer:
    from rich.console import Console

    from weir.trainer.trainer import Trainer

    first = first_weights(settings, model)
    see_training_gpus(settings)
    return Trainer(
        trainer_config(settings),
        settings.store,
        model_path=first,
        renderer=lambda: chat_renderer(first, settings),
        console=Console(),
    )


def _plan(settings: Settings, model: Path | None, device_gib: float | None) -> None:
    """Memory and work by the settings, and what is ready in the store. Raises where it does not fit."""
    from weir.scripts.models.round_plan import plan_lines, plan_memory, require_fit
    from weir.trainer.rounds.fit import device_bytes

    first = first_weights(settings, model)
    capacity = device_bytes(settings.trainer.device) if device_gib is None else int(device_gib * 2**30)
    planned = plan_memory(settings.trainer, settings.agents, first, capacity=capacity)
    typer.echo("\n".join(plan_lines(planned)))
    require_fit(planned)
    if not settings.store.catalog_url and not (settings.store.folder / "catalog.sqlite").exists():
        typer.echo(f"claim      nothing to claim: there is no store yet in {settings.store.root}")
        return
    trainer = _trainer(settings, model)
    try:
        found = trainer.ready()
    finally:
        trainer.close()
    typer.echo(
        f"claim      {len(found.groups)} groups are ready, {trainer.config.min_groups} are needed; nothing was claimed"
    )


def _too_few(trainer: Trainer) -> str:
    found = trainer.ready()
    text = (
        f"no round: too few finished groups are waiting: {len(found.groups)} of the {trainer.config.min_groups} that "
        "trainer.min_groups asks for are ready"
    )
    if found.expired:
        text += f"; {len(found.expired)} more have weights too old for trainer.max_staleness"
    if found.damaged:
        text += f"; {len(found.damaged)} more wait because they may lack calls"
    if found.unversioned:
        text += f"; {len(found.unversioned)} more are left out: {next(iter(found.unversioned.values()))}"
    return text


def _plan_text(planned: ClaimedRound) -> str:
    sessions = sum(len(group.calls) for group in planned.groups)
    calls = sum(len(call_ids) for group in planned.groups for call_ids in group.calls.values())
    lines = [
        f"round {planned.round} would train version {planned.version} from version {planned.parent} "
        f"({planned.parent_path}) on {len(planned.groups)} groups: {sessions} sessions, {calls} calls",
        f"settings {planned.config_hash[:12]}: {planned.config['algorithm']}, lr {planned.config['lr']:g}, "
        f"seed {planned.seed}",
        *map(_group_line, planned.groups),
    ]
    if planned.expired:
        lines.append(f"consumed without training, as their weights are too old: {', '.join(planned.expired)}")
    if planned.surplus:
        lines.append(f"consumed without training, beyond trainer.max_buffer_size: {', '.join(planned.surplus)}")
    return "\n".join(lines)


def _group_line(group: ClaimedGroup) -> str:
    missing = group.group_size - len(group.calls)
    late = f", {missing} sessions timed out" if missing > 0 else ""
    task = "" if group.task is None else f" ({group.task.task_id})"
    return f"  {group.group_id}{task}: {len(group.calls)} sessions{late}"


def _replay(trainer: Trainer, number: int) -> None:
    found = trainer.replay(number)
    if found.differing:
        typer.echo(f"round {number} does not repeat: version {found.version} differs in {', '.join(found.differing)}")
        raise typer.Exit(1)
    typer.echo(
        f"round {number} repeats bit for bit: the {found.num_files} files of version {found.version} are the same"
    )
