"""`weir simulate`: policies of a described cluster in a discrete-event simulation."""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import Annotated

import typer

from weir.scripts.launch.errors import UsageError


class PolicyName(enum.StrEnum):
    """Policies by name, and all of them."""

    ALL = "all"
    SYNC_COLOCATED = "sync_colocated"
    DISAGGREGATED = "disaggregated"
    ONE_STEP_OFF = "one_step_off"
    TAGS = "tags"


class Suite(enum.StrEnum):
    """Suites of goals."""

    PAPER = "paper"


def simulate(
    cluster: Annotated[Path | None, typer.Argument(help="Description of the cluster, a TOML file.")] = None,
    policy: Annotated[PolicyName, typer.Option(help="Who rolls out and who trains when.")] = PolicyName.ALL,
    updates: Annotated[int, typer.Option(min=2, help="Updates to simulate.")] = 12,
    warmup: Annotated[int, typer.Option(min=1, help="Updates at the start that figures leave out.")] = 4,
    sizes: Annotated[str | None, typer.Option(help="Sweep: member counts, e.g. 8,64,1024; batches grow alike.")] = None,
    gantt: Annotated[Path | None, typer.Option(help="Folder for a picture of each policy, as SVG.")] = None,
    suite: Annotated[Suite | None, typer.Option(help="Instead: the goals of a suite, each with its value.")] = None,
    calibrate: Annotated[Path | None, typer.Option(help="Instead: [costs] that fit the calls of this store.")] = None,
    against: Annotated[
        Path | None, typer.Option(help="Instead: a run of `weir train` over this store, beside its simulation.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All figures as JSON on the last line.")] = False,
) -> None:
    """Simulate rollouts and training on a cluster.

    Prints throughput, idle share by cause, staleness and hold times of each policy.
    """
    if calibrate is not None:
        from weir.cluster.costs.calibrate import calibrate as fit

        typer.echo(fit(calibrate).as_toml(), nl=False)
    elif against is not None:
        _against(against, PolicyName.TAGS if policy is PolicyName.ALL else policy, warmup, as_json)
    elif suite is not None:
        _suite(as_json)
    elif cluster is not None:
        names = [name.value for name in PolicyName if name is not PolicyName.ALL]
        chosen = names if policy is PolicyName.ALL else [policy.value]
        _simulate(cluster, chosen, updates, warmup, _sizes(sizes), gantt, as_json)
    else:
        raise UsageError(
            "weir simulate needs a description of a cluster, --suite, --calibrate or --against (docs/scheduling.md)"
        )


def _simulate(
    cluster: Path,
    policies: list[str],
    updates: int,
    warmup: int,
    sizes: list[int],
    gantt: Path | None,
    as_json: bool,
) -> None:
    from weir.cluster.description import load_description
    from weir.cluster.policies.by_name import POLICIES
    from weir.cluster.simulator.gantt import gantt as picture
    from weir.cluster.simulator.simulation import Simulation
    from weir.cluster.suite.sweep import scaled

    described = load_description(cluster)
    figures = {}
    for size in sizes or [sum(group.count for group in described.members)]:
        description = scaled(described, size)
        for name in policies:
            simulation = Simulation(description, POLICIES[name], keep_segments=gantt is not None)
            result = simulation.run(updates=updates, warmup=warmup)
            figures[f"{name}_{size}" if sizes else name] = result.figures()
            idle = ", ".join(f"{cause} {share:.1%}" for cause, share in result.shares.items())
            typer.echo(
                f"{name:15} {size:6} members {result.tokens_per_s:12,.0f} tokens/s  idle {result.idle_share:6.1%}  "
                f"hold p99 {result.hold_s.get('p99', 0):.1f} s  {result.events_per_s:,.0f} events/s\n    {idle}"
            )
            if gantt is not None:
                gantt.mkdir(parents=True, exist_ok=True)
                start = simulation.totals.since_s
                title = f"{name}, {size} members"
                (gantt / f"{name}.svg").write_text(picture(result.segments, title, start_s=start, beside=result.marks))
    if as_json:
        typer.echo(json.dumps(figures))


def _against(store: Path, policy: PolicyName, warmup: int, as_json: bool) -> None:
    from weir.cluster.suite.recorded import against

    figures = against(store, policy.value, warmup)
    rows = {name: figures[name] for name in ("tokens_per_s", "idle_share")} | figures["shares"]
    typer.echo(f"{'':16} {'recorded':>10} {'simulated':>10}")
    for name, of in rows.items():
        typer.echo(f"{name:16} {of['recorded']:10.4g} {of['simulated']:10.4g}")
    if as_json:
        typer.echo(json.dumps(figures))


def _suite(as_json: bool) -> None:
    from weir.cluster.suite.paper import paper_suite

    goals = paper_suite(lambda line: typer.echo(line, err=True))
    for name, goal in goals.items():
        typer.echo(f"{'met   ' if goal['met'] else 'MISSED'} {name}: {goal['value']} (goal: {goal['goal']})")
        if not goal["met"]:
            typer.echo(f"       decided by: {goal['assumption']}")
    if as_json:
        typer.echo(json.dumps(goals))


def _sizes(given: str | None) -> list[int]:
    try:
        sizes = [int(one) for one in given.split(",")] if given else []
    except ValueError as error:
        raise UsageError(f"--sizes {given}: member counts separated by commas, e.g. 8,64,1024") from error
    if any(size < 2 for size in sizes):
        raise UsageError(f"--sizes {given}: a cluster has at least 2 members")
    return sizes
