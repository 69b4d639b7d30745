"""Regression check: compares the metrics of new weights with those of the old ones on the same tasks.

Invariant: pure. The metrics are those of rounds (`kernel_metrics.py`); one that was measured before and not after
counts as 0 after.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from weir.store.catalog.rows import EvaluationRow
from weir.trainer.errors import TrainerUsageError
from weir.trainer.rounds.kernel_metrics import kernel_metrics


class RegressionConfig(BaseModel):
    """How tasks are answered and judged, and which loss counts as a regression."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    samples: int = Field(default=4, ge=1, description="Answers to each task.")
    max_tokens: int = Field(default=2048, ge=1, description="Bound on the tokens of one answer.")
    temperature: float = Field(default=1.0, ge=0, description="Sampling temperature.")
    seed: int = Field(
        default=0, ge=0, lt=2**31, description="Seed of the answers, and of the inputs that they are judged on."
    )
    num_correct_trials: int = Field(default=2, ge=1, description="Correctness trials behind one verdict.")
    concurrency: int = Field(default=16, ge=1, description="Answers, and verdicts, in flight at once.")
    bound: float = Field(default=0.05, ge=0, le=1, description="How far a share may fall; more is a regression.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """The judge's verdicts on the answers of one model."""

    rows: list[EvaluationRow]  # a group is a task
    num_unsupported: int  # answers that cannot be judged, excluded from the metrics


class Regression(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics before and after, by name, and the names of those that fell by more than the bound."""

    num_tasks: int
    num_answers: int
    bound: float
    before: dict[str, float]
    after: dict[str, float]
    worse: list[str]
    faults: dict[str, dict[str, int]]  # before and after → fault → answers
    unsupported: dict[str, int]  # before and after → answers that cannot be judged

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        fallen = [f"{name} fell from {self.before[name]:.2f} to {self.after.get(name, 0.0):.2f}" for name in self.worse]
        return f"regression: {', '.join(fallen)} (bound {self.bound:g})" if fallen else "no regression"


def compare(before: Verdicts, after: Verdicts, bound: float) -> Regression:
    """Compare the verdicts before and after; a share that fell by more than `bound` is a regression.

    Raises `TrainerUsageError` where no answer of one side could be judged.
    """
    for verdicts in (before, after):
        if not verdicts.rows:
            raise TrainerUsageError(
                f"none of {verdicts.num_unsupported} answers could be judged; `weir tasks check` says which tasks can"
            )
    first, new = kernel_metrics(before.rows), kernel_metrics(after.rows)
    figures = figures_of(first), figures_of(new)
    return Regression(
        num_tasks=len({row.group_id for row in (*before.rows, *after.rows)}),
        num_answers=len(after.rows),
        bound=bound,
        before=figures[0],
        after=figures[1],
        worse=[name for name, was in figures[0].items() if was - figures[1].get(name, 0.0) > bound],
        faults={"before": first["faults"], "after": new["faults"]},
        unsupported={"before": before.num_unsupported, "after": after.num_unsupported},
    )


def figures_of(metrics: dict[str, Any]) -> dict[str, float]:
    """The metrics that are compared: compile@1, correct@1, and fast_p (tasks solved more than p times as fast)."""
    speed = {f"fast_{p}": share for p, share in metrics.get("fast_p", {}).items()}
    return {"compile@1": metrics["compile_at_k"]["1"], "correct@1": metrics["correct_at_k"]["1"], **speed}
