"""The costs that fit a store: of decoding and prefill by its calls, of updates and switches by the phases of members.

A recorded call took call + prefill x new tokens + output tokens x (base + request x batch + token x context), where
batch and context are the means of the calls that ran beside it, and the new tokens are those of all that began while it
ran on its engine, since prefill stalls the others. Least squares with coefficients of at least zero gives the five.
Time at the gate is left out of a call's duration. What a controller made members do is a median over its phases.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from weir.cluster.errors import ClusterInvalid
from weir.store.reader import connect

LEAST_CALLS = 20
CALLS = """
SELECT started_us / 1e6 + coalesce(held_ms, 0) / 1e3, finished_us / 1e6,
       num_prompt_tokens - coalesce(cached_tokens, 0), num_prompt_tokens, num_output_tokens
FROM calls WHERE num_output_tokens > 0 AND error IS NULL AND started_us >= $1 ORDER BY started_us"""
ROTATION = """
SELECT epoch(began_at), epoch(ended_at) FROM phases WHERE phase IN ('rollout', 'load') AND ended_at > began_at"""
PHASES = """
WITH neighbours AS (
  SELECT phase, began_at, duration_s, (seconds ->> 'train')::DOUBLE AS training_s,
         coalesce((seconds ->> 'awaits_judge')::DOUBLE, 0) AS judging_s,
         lag(phase) OVER one AS before, lag(event) OVER one AS event_before,
         lead(phase) OVER one AS after, lead(event) OVER one AS event_after
  FROM phases WINDOW one AS (PARTITION BY member ORDER BY phase_id))
SELECT median(training_s) FILTER (phase = 'train' AND event_after = 'trained'),
       median(judging_s) FILTER (phase = 'train' AND event_after = 'trained'),
       median(duration_s) FILTER (phase = 'switch' AND before = 'rollout' AND after = 'waits'),
       median(duration_s) FILTER (phase = 'switch' AND before = 'waits' AND event_before <> 'member_joined'
                                  AND after = 'rollout'),
       median(duration_s) FILTER (phase = 'load' AND after = 'rollout')
FROM neighbours WHERE epoch_us(began_at) >= $1"""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCosts:
    """Medians over the phases of a controller's members, by their names in `[costs]`; None: there was no such phase."""

    update_s: float | None = None
    judge_s: float | None = None
    to_train_s: float | None = None
    to_rollout_s: float | None = None
    load_s: float | None = None

    def costs(self) -> dict[str, float]:
        """Keys of `[costs]`. What was measured as one is not divided: state and travel of weights are set to zero.

        `judge_s` is what a round waited for its judge before it trained, whatever was judged ahead of it.
        """
        found = {"update_s": self.update_s, "judge_s": self.judge_s, "to_train_s": self.to_train_s}
        found |= {"judge_overlaps": None if self.judge_s is None else False}
        found |= {"state_s": None if self.to_train_s is None else 0.0, "to_rollout_s": self.to_rollout_s}
        found |= {"load_s": self.load_s, "spread_s": None if self.load_s is None else 0.0}
        return {name: seconds for name, seconds in found.items() if seconds is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Costs that were fitted, by their names in `[costs]`.

    `explained` is the share of the variance of the calls' durations that they explain (R²).
    """

    step_base_s: float
    step_request_s: float
    step_context_s: float
    prefill_token_s: float
    call_s: float
    calls: int
    explained: float
    phases: PhaseCosts = PhaseCosts()

    def as_toml(self) -> str:
        """The section `[costs]` of a description."""
        return f"[costs]  # fitted to {self.calls} calls; R² = {self.explained:.3f}\n" + "".join(
            f"{name} = {_toml(value)}\n" for name, value in self.costs().items()
        )

    def costs(self) -> dict[str, float]:
        """Keys of `[costs]`."""
        return {
            "step_overhead_s": self.step_base_s,
            "step_weights_s": 0.0,  # a step takes this or what its requests take, and the base beside it
            "step_request_s": self.step_request_s,
            "step_context_s": self.step_context_s,
            "prefill_token_s": self.prefill_token_s,
            "call_s": self.call_s,
            **self.phases.costs(),
        }


def calibrate(root: Path | str, since_s: float = 0.0) -> Calibration:
    """Fit the costs to the calls of a store, and to the phases of its members, that began since a moment.

    A controller learns what a switch costs from any: where none began since then, the earlier ones count.

    Raises:
        ClusterInvalid: The store has too few calls with tokens.
    """
    with connect(root) as db:
        rows = np.array(db.execute(CALLS, [int(since_s * 1e6)]).fetchall(), dtype=np.float64)
        rotation = np.array(db.execute(ROTATION).fetchall(), dtype=np.float64).reshape(-1, 2)
        since, ever = (db.execute(PHASES, [int(moment * 1e6)]).fetchone() for moment in (since_s, 0.0))
    if len(rows) < LEAST_CALLS:
        raise ClusterInvalid(f"the store {root} has {len(rows)} calls with tokens; a fit needs {LEAST_CALLS}")
    assert since is not None and ever is not None
    medians = [before if seconds is None else seconds for seconds, before in zip(since, ever, strict=True)]
    names = ("update_s", "judge_s", "to_train_s", "to_rollout_s", "load_s")
    return dataclasses.replace(fit(rows, rotation), phases=PhaseCosts(**dict(zip(names, medians, strict=True))))


def fit(rows: Floats, rotation: Floats | None = None) -> Calibration:
    """The costs of calls: rows of start, end (s), new prompt tokens, prompt tokens, output tokens, shape (N, 5).

    `rotation` has start and end of each time in which an engine took calls, shape (M, 2); none: it was one engine.
    """
    start, end, new, prompt, output = rows.T
    batch, context = beside(start, end, prompt + output / 2)
    stalls = begun_within(start, end, new)
    if rotation is not None and len(rotation):
        entered, left = rotation.T
        engines = np.maximum(mean_level(entered, left, np.ones_like(left), start, end), 1.0)
        batch, context, stalls = np.maximum(batch / engines, 1.0), context / engines, stalls / engines
        again = (np.searchsorted(np.sort(left), end) - np.searchsorted(np.sort(left), start)) / engines
        stalls = stalls + again * context  # an engine that loads or leaves: its contexts are computed once more
    terms = np.stack([output, output * batch, output * context, new + stalls, np.ones_like(new)], axis=1)
    seconds = end - start
    found = least_squares(terms, seconds)
    left = seconds - terms @ found
    spread = float(((seconds - seconds.mean()) ** 2).sum())
    return Calibration(
        step_base_s=float(found[0]),
        step_request_s=float(found[1]),
        step_context_s=float(found[2]),
        prefill_token_s=float(found[3]),
        call_s=float(found[4]),
        calls=len(rows),
        explained=1 - float((left**2).sum()) / spread if spread else 0.0,
    )


def beside(start: Floats, end: Floats, tokens: Floats) -> tuple[Floats, Floats]:
    """Mean number of calls, and of their tokens, that ran while each call did, itself included; shape (N,) each."""
    return mean_level(start, end, np.ones_like(start), start, end), mean_level(start, end, tokens, start, end)


def begun_within(start: Floats, end: Floats, tokens: Floats) -> Floats:
    """The tokens of calls that began while each call ran, without its own; calls by their start, shape (N,)."""
    sums = np.concatenate([[0.0], np.cumsum(tokens)])
    found: Floats = sums[np.searchsorted(start, end)] - sums[1:][: len(start)]
    return np.maximum(found, 0.0)


def mean_level(start: Floats, end: Floats, weight: Floats, first: Floats, last: Floats) -> Floats:
    """Mean sum of the weights of the intervals (start, end) that hold, between each first and last; shape (N,)."""
    times = np.concatenate([start, end])
    order = np.argsort(times, kind="stable")
    at = times[order]
    level = np.cumsum(np.concatenate([weight, -weight])[order])
    area = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(at))])
    means: Floats = (np.interp(last, at, area) - np.interp(first, at, area)) / np.maximum(last - first, 1e-9)
    return means


def _toml(value: float) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:.6g}"


def least_squares(terms: Floats, values: Floats) -> Floats:
    """Coefficients of at least zero: those that come out negative are left out, the most negative first; shape (K,)."""
    kept = list(range(terms.shape[1]))
    found = np.zeros(terms.shape[1])
    while kept:
        scale = np.maximum(np.abs(terms[:, kept]).max(axis=0), 1e-12)
        solved = np.linalg.lstsq(terms[:, kept] / scale, values, rcond=None)[0]
        if (solved >= 0).all():
            found[kept] = solved / scale
            break
        kept.pop(int(solved.argmin()))
    return found
