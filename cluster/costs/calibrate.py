"""The costs that fit a store: of decoding and prefill by its calls, of updates and switches by the phases of members.

A recorded call took prefill x new tokens + output tokens x (base + request x batch + token x context), where batch and
context are the means of the calls that ran beside it. Least squares with coefficients of at least zero gives the four.
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
FROM calls WHERE num_output_tokens > 0 AND error IS NULL ORDER BY started_us"""
PHASES = """
WITH neighbours AS (
  SELECT phase, duration_s, (seconds ->> 'train')::DOUBLE AS training_s,
         lag(phase) OVER one AS before, lag(event) OVER one AS event_before,
         lead(phase) OVER one AS after, lead(event) OVER one AS event_after
  FROM phases WINDOW one AS (PARTITION BY member ORDER BY phase_id))
SELECT median(training_s) FILTER (phase = 'train' AND event_after = 'trained'),
       median(duration_s) FILTER (phase = 'switch' AND before = 'rollout' AND after = 'waits'),
       median(duration_s) FILTER (phase = 'switch' AND before = 'waits' AND event_before <> 'member_joined'
                                  AND after = 'rollout'),
       median(duration_s) FILTER (phase = 'load' AND after = 'rollout')
FROM neighbours"""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCosts:
    """Medians over the phases of a controller's members, by their names in `[costs]`; None: there was no such phase."""

    update_s: float | None = None
    to_train_s: float | None = None
    to_rollout_s: float | None = None
    load_s: float | None = None

    def as_toml(self) -> str:
        """Lines of `[costs]`. What was measured as one is not divided: state and travel of weights are set to zero."""
        found = {"update_s": self.update_s, "to_train_s": self.to_train_s}
        found |= {"state_s": None if self.to_train_s is None else 0.0, "to_rollout_s": self.to_rollout_s}
        found |= {"load_s": self.load_s, "spread_s": None if self.load_s is None else 0.0}
        return "".join(f"{name} = {seconds:.6g}\n" for name, seconds in found.items() if seconds is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Costs that were fitted, by their names in `[costs]`.

    `explained` is the share of the variance of the calls' durations that they explain (R²).
    """

    step_weights_s: float
    step_request_s: float
    step_context_s: float
    prefill_token_s: float
    calls: int
    explained: float
    phases: PhaseCosts = PhaseCosts()

    def as_toml(self) -> str:
        """The section `[costs]` of a description."""
        return (
            f"[costs]  # fitted to {self.calls} calls; R² = {self.explained:.3f}\n"
            f"step_overhead_s = 0.0\nstep_weights_s = {self.step_weights_s:.6g}\n"
            f"step_request_s = {self.step_request_s:.6g}\nstep_context_s = {self.step_context_s:.6g}\n"
            f"prefill_token_s = {self.prefill_token_s:.6g}\n" + self.phases.as_toml()
        )


def calibrate(root: Path | str) -> Calibration:
    """Fit the costs to the calls of a store, and to the phases of its members.

    Raises:
        ClusterInvalid: The store has too few calls with tokens.
    """
    with connect(root) as db:
        rows = np.array(db.execute(CALLS).fetchall(), dtype=np.float64)
        medians = db.execute(PHASES).fetchone()
    if len(rows) < LEAST_CALLS:
        raise ClusterInvalid(f"the store {root} has {len(rows)} calls with tokens; a fit needs {LEAST_CALLS}")
    assert medians is not None
    names = ("update_s", "to_train_s", "to_rollout_s", "load_s")
    return dataclasses.replace(fit(rows), phases=PhaseCosts(**dict(zip(names, medians, strict=True))))


def fit(rows: Floats) -> Calibration:
    """The costs of calls: rows of start, end (s), new prompt tokens, prompt tokens, output tokens, shape (N, 5)."""
    start, end, new, prompt, output = rows.T
    batch, context = beside(start, end, prompt + output / 2)
    terms = np.stack([output, output * batch, output * context, new], axis=1)
    seconds = end - start
    found = least_squares(terms, seconds)
    left = seconds - terms @ found
    spread = float(((seconds - seconds.mean()) ** 2).sum())
    return Calibration(
        step_weights_s=float(found[0]),
        step_request_s=float(found[1]),
        step_context_s=float(found[2]),
        prefill_token_s=float(found[3]),
        calls=len(rows),
        explained=1 - float((left**2).sum()) / spread if spread else 0.0,
    )


def beside(start: Floats, end: Floats, tokens: Floats) -> tuple[Floats, Floats]:
    """Mean number of calls, and of their tokens, that ran while each call did, itself included; shape (N,) each."""
    times = np.concatenate([start, end])
    order = np.argsort(times, kind="stable")
    at = times[order]

    def mean(weight: Floats) -> Floats:
        level = np.cumsum(np.concatenate([weight, -weight])[order])
        area = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(at))])
        whole = np.interp(end, at, area) - np.interp(start, at, area)
        means: Floats = whole / np.maximum(end - start, 1e-9)
        return means

    return mean(np.ones_like(start)), mean(tokens)


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
