"""The metrics of a round: computed from its parts, logged under the store's root, printed as a short table.

Invariant: metrics are written into the version folder first and to `metrics.jsonl` from there, so that a round killed
after its checkpoint still reports once. Nothing here influences training.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from weir.store.catalog.rows import EvaluationRow
from weir.trainer.credit.samples import Sample
from weir.trainer.errors import TrainerUsageError
from weir.trainer.hooks import GroupItem
from weir.trainer.rounds.kernel_metrics import kernel_metrics
from weir.trainer.skip import Skip
from weir.trainer.timings import RoundTimes

if TYPE_CHECKING:  # torch is imported with the first backend, so that a start without groups costs little
    from weir.trainer.learner.step_stats import StepStats

METRICS_FILE = "metrics.json"
METRICS_LOG = "metrics.jsonl"
HISTOGRAM_EDGES = (0.1, 0.3, 0.5, 1.0)  # of raw_reward; the last bin is everything from 1.0 on

_OF_LOSS = ("loss", "grad_norm", "kl_k3", "kl_reference", "entropy", "tree_ratio")
_IN_TABLE = (
    "groups",
    "calls",
    "samples",
    "reward_mean",
    "correct",
    "compiled",
    "speedup_mean",
    "log2_speedup_mean",
    "frac_groups_without_spread",
    "groups_refilled",
    "loss",
    "sft_loss",
    "sft_too_long",
    "grad_norm",
    "entropy",
    "kl_k3",
    "clip_high",
    "fresh_logprob_diff_max",
    "off_policy_tokens",
    "off_policy_weight_mean",
    "off_policy_clipped",
    "off_policy_outside",
    "staleness_mean",
    "tokens_per_s",
    "mfu",
    "groups_waiting",
)
_OF_DIFFERENCES = ("fresh_logprob_diff_p50", "fresh_logprob_diff_p90", "fresh_logprob_diff_p99")
_COUNTED = ("fast_p", "corrected", "skipped", "faults", "speedup_unconfirmed", "early_stop")
_OF_RATIOS = ("clip_low", "clip_high", "dropped", "ratio_mean", "ess")

Metrics = dict[str, Any]


def reward_metrics(items: Sequence[GroupItem], terms: Iterable[str], evaluations: Sequence[EvaluationRow]) -> Metrics:
    """Metrics of the rewards of all judged calls, before hooks, with those of kernel evaluation where it ran."""
    rewards = [item.raw_reward for item in items]
    return {
        "judged_calls": len(rewards),
        "reward_mean": _mean(rewards),
        "reward_std": statistics.stdev(rewards) if len(rewards) > 1 else 0.0,
        "rewards": {name: _mean([item.rewards[name] for item in items]) for name in terms},
        "raw_reward_histogram": _histogram(rewards),
        "faults": {},
        **kernel_metrics(evaluations),
    }


def sample_metrics(samples: Sequence[Sample], skipped: Mapping[Skip, int], parent_version: int) -> Metrics:
    """Metrics of the samples, and the calls left out by reason."""
    staleness = [parent_version - int(sample.versions.min()) for sample in samples]
    return {
        "samples": len(samples),
        "output_tokens": sum(len(sample.output_ids) for sample in samples),
        "tokens": sum(len(sample.prompt_ids) + len(sample.output_ids) for sample in samples),
        "staleness_mean": statistics.fmean(staleness) if staleness else 0.0,
        "staleness_max": max(staleness, default=0),
        "corrected": _corrected(samples),
        "recorded_truncation": sum(sample.sampling_logprobs is not None for sample in samples),
        "skipped": {reason.value: count for reason, count in sorted(skipped.items()) if count},
    }


def _corrected(samples: Sequence[Sample]) -> dict[str, int]:
    """Samples that are trained on with importance weights, by the reason for which they would be left out without."""
    behaviours = [sample.behaviour for sample in samples]
    counts = {
        Skip.GREEDY: sum(behaviour.greedy for behaviour in behaviours),
        Skip.TRUNCATED_SAMPLING: sum(behaviour.is_changed for behaviour in behaviours),
    }
    return {reason.value: count for reason, count in counts.items() if count}


def step_metrics(steps: Sequence[StepStats]) -> Metrics:
    """Metrics of the optimiser steps taken: means, but for the logprob check, which is the first step's.

    `early_stop` names the limit that refused a further step.
    """
    if not steps:
        return {"optimizer_steps": 0}
    stopped_by, steps = steps[-1].stopped_by, [step for step in steps if step.stopped_by is None]
    first = steps[0]
    figures = [_figures(step) for step in steps]
    means = {name: statistics.fmean(figure[name] for figure in figures) for name in (*_OF_LOSS, *_OF_RATIOS)}
    return {
        "optimizer_steps": len(steps),
        "epochs": len({step.epoch for step in steps}),
        **({} if stopped_by is None else {"early_stop": {stopped_by: 1}}),
        **({} if first.kl_coef is None else {"kl_coef": first.kl_coef}),
        **means,
        **{
            name: statistics.fmean(figure[name] for figure in figures)
            for name in ("value_loss", "sft_loss", "balance_loss")
            if name in figures[0]
        },
        "ratio_min": min(step.ratio_min for step in steps),
        "ratio_max": max(step.ratio_max for step in steps),
        "logprob_diff_mean": first.logprob_diff_mean,
        "logprob_diff_max": first.logprob_diff_max,
        "fresh_tokens": first.fresh_tokens,
        "fresh_logprob_diff_mean": first.fresh_logprob_diff_mean,
        "fresh_logprob_diff_max": first.fresh_logprob_diff_max,
        **{name: getattr(first, name) for name in _OF_DIFFERENCES},
        **_off_policy_metrics(steps),
        "steps": figures,
    }


def _figures(step: StepStats) -> Metrics:
    """The numbers of a step that it has, by name."""
    numbers = asdict(replace(step, traces=()))
    return {name: value for name, value in numbers.items() if value is not None and name != "traces"}


def _off_policy_metrics(steps: Sequence[StepStats]) -> Metrics:
    """Totals and means over the off-policy tokens of all steps; empty without any."""
    tokens = sum(step.off_policy_tokens for step in steps)
    if not tokens:
        return {}
    means = {
        name: sum(getattr(step, name) * step.off_policy_tokens for step in steps) / tokens
        for name in ("off_policy_clipped", "off_policy_weight_mean", "off_policy_ess")
    }
    return {"off_policy_tokens": tokens, "off_policy_outside": sum(step.off_policy_outside for step in steps), **means}


def speed_metrics(num_tokens: int, seconds: float, num_parameters: int, peak_tflops: float | None) -> Metrics:
    """Tokens per second and model FLOPs utilisation (mfu), at 6 operations per parameter and token.

    The estimate omits attention and shared prefixes (Kaplan et al., 2020, section 2.1). `peak_tflops` is in 10^12
    operations per second; None: no mfu.
    """
    tokens_per_s = num_tokens / max(seconds, 1e-9)
    if peak_tflops is None:
        return {"tokens_per_s": tokens_per_s}
    return {"tokens_per_s": tokens_per_s, "mfu": 6 * num_parameters * tokens_per_s / (peak_tflops * 1e12)}


def times_so_far(times: RoundTimes) -> Metrics:
    """Seconds of steps by name, and `timeline`: [name, beginning in Unix seconds, seconds] of each run of a step."""
    return {"seconds": dict(times.seconds), "timeline": [list(span) for span in times.timeline]}


def write_metrics(root: Path, metrics: Metrics, *, tensorboard: bool) -> None:
    """Append a round to `metrics.jsonl` and TensorBoard's events, unless it is logged already."""
    if is_reported(root, metrics["round"]):
        return
    log, written = root / METRICS_LOG, _written(root)
    torn = b"" if written.endswith(b"\n") or not written else b"\n"
    with log.open("ab") as file:
        file.write(torn + json.dumps(metrics, sort_keys=True).encode() + b"\n")
    if tensorboard:
        _write_tensorboard(root / "tensorboard", metrics)


def is_reported(root: Path, round_id: int) -> bool:
    """Whether a round is logged in `metrics.jsonl`."""
    return any(_round_of(line) == round_id for line in _written(root).splitlines())


def print_table(console: Console, metrics: Metrics) -> None:
    """Print the round's main metrics."""
    rows = [(name, metrics.get(name)) for name in _IN_TABLE]
    rows += [(f"{title}: {name}", count) for title in _COUNTED for name, count in metrics.get(title, {}).items()]
    rows += [(f"{name} (s)", metrics["seconds"].get(name)) for name in ("judge", "train", "checkpoint", "publish")]
    width = max(len(name) for name, _ in rows)
    lines = [f"round {metrics['round']} → version {metrics['version']}"]
    lines += [f"  {name:{width}}  {_shown(value):>10}" for name, value in rows if value is not None]
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _written(root: Path) -> bytes:
    """The content of `metrics.jsonl`. Raises `TrainerUsageError` where it cannot be read."""
    try:
        return (root / METRICS_LOG).read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise TrainerUsageError(
            f"cannot read {root / METRICS_LOG}: {error.strerror}; it is the log of rounds' metrics: move it away, and "
            "the next start writes it"
        ) from error


def _shown(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else 0.0


def _histogram(rewards: Sequence[float]) -> dict[str, int]:
    """Counts of rewards below each edge, and of those at or above the last."""
    bounds = [float("-inf"), *HISTOGRAM_EDGES, float("inf")]
    names = [f"<{edge:g}" for edge in HISTOGRAM_EDGES] + [f">={HISTOGRAM_EDGES[-1]:g}"]
    pairs = zip(names, bounds, bounds[1:], strict=False)
    return {name: sum(low <= reward < high for reward in rewards) for name, low, high in pairs}


def _round_of(line: bytes) -> int | None:
    try:
        value = json.loads(line)
    except ValueError:  # the torn last line of a killed process
        return None
    return value.get("round") if isinstance(value, dict) else None


def _write_tensorboard(folder: Path, metrics: Metrics) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    steps = metrics.get("steps", [])
    first = (metrics["round"] - 1) * len(steps) + 1
    writer = EventFileWriter(str(folder))
    for at, scalars in (
        (metrics["round"], _scalars(metrics)),
        *((first + i, _scalars(step, "step/")) for i, step in enumerate(steps)),
    ):
        values = [Summary.Value(tag=name, simple_value=value) for name, value in scalars]
        writer.add_event(Event(wall_time=time.time(), step=at, summary=Summary(value=values)))
    writer.close()


def _scalars(metrics: Mapping[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for name, value in metrics.items():
        if isinstance(value, dict):
            found.extend(_scalars(value, f"{prefix}{name}/"))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.append((prefix + name, float(value)))
    return found
