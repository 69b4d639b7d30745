"""`weir bench round`: the time of a round outside judging, training and loading weights.

It uses the demo's model, tasks, servers (two engines, router, proxy, kernel evaluation) and settings. The agents' calls
are recorded beforehand, so that no agents compete for the CPU: kernels drawn from the demo's corpus, judged once for
the agent, and again by the round. A first round warms up servers and trainer and does not count. Loading is the reading
of weights by trainer and engines.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from weir.scripts.bench.figures import print_figures
from weir.scripts.bench.round.groups import record_groups
from weir.scripts.demo_loop.run import DemoOptions, prepare, write_config
from weir.scripts.launch.errors import CommandError
from weir.scripts.launch.fleet import fleet, served_model
from weir.scripts.launch.resolve import trainer_config
from weir.scripts.launch.servers import running
from weir.scripts.launch.settings import Settings, load_settings
from weir.trainer.trainer import RoundReport, Trainer

GOAL = 0.05
WORK = ("judge", "train", "load", "engines_load")
Steps = dict[str, float]  # seconds by step; "rest" is time outside all steps


def main(rounds: int) -> None:
    """Run the benchmark; prints a line per step, then one JSON object."""
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as name, _prepared(Path(name), rounds + 1) as trainer:
        _timed_round(trainer)
        measured = [_timed_round(trainer) for _ in range(rounds)]
    print_figures(figures(measured))


@contextlib.contextmanager
def _prepared(folder: Path, rounds: int) -> Iterator[Trainer]:
    """Yield a trainer beside the demo's servers, over a store with groups for `rounds` rounds."""
    options = DemoOptions(folder=folder / "demo")
    prepare(options, print)
    config_path = write_config(options)
    settings = load_settings(config_path)
    with running(fleet(settings, config_path)):
        print(f"Recording {rounds * settings.trainer.groups_per_round} groups …", flush=True)
        record_groups(settings, rounds)
        with contextlib.closing(_trainer(settings)) as trainer:
            yield trainer


def _trainer(settings: Settings) -> Trainer:
    return Trainer(trainer_config(settings), settings.store, model_path=served_model(settings))


def _timed_round(trainer: Trainer) -> Steps:
    started = time.monotonic()
    report = trainer.run_round()
    seconds = time.monotonic() - started
    if report is None or report.metrics["samples"] == 0:
        raise CommandError("a round had nothing to train on; the groups of the benchmark are not as they should be")
    return steps(report, seconds)


def steps(report: RoundReport, seconds: float) -> Steps:
    """Seconds of a round by step, with publishing split up; they add up to `seconds`."""
    taken = report.seconds | report.published.times
    taken["publish"] -= sum(report.published.times.values())
    return taken | {"rest": seconds - sum(taken.values())}


def overhead_share(taken: Steps) -> float:
    """The share of a round outside judging, training and loading."""
    return 1 - sum(taken.get(name, 0.0) for name in WORK) / sum(taken.values())


def figures(measured: list[Steps]) -> dict[str, float | Steps]:
    """Print the medians over rounds for people; returns them rounded."""
    seconds = {name: statistics.median(taken.get(name, 0.0) for taken in measured) for name in measured[0]}
    whole = statistics.median(sum(taken.values()) for taken in measured)
    share = statistics.median(map(overhead_share, measured))
    for name, value in seconds.items():
        print(f"{name:>14}: {1000 * value:7.1f} ms  {value / whole:6.1%}{'' if name in WORK else '  overhead'}")
    print(
        f"not judging, training or loading: {share:.1%} of {whole:.2f} s, over {len(measured)} rounds (goal {GOAL:.0%})"
    )
    rounded = {name: round(value, 4) for name, value in seconds.items()}
    return {"overhead_share": round(share, 4), "round_s": round(whole, 3), "seconds": rounded}
