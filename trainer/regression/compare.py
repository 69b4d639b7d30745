"""What new weights can do beside the ones they came from: figures of both on the same tasks, and what has become worse.

Invariant: pure. The figures are those of rounds (`kernel_metrics.py`); one that nothing was measured for counts as 0
beside one that was. Not here: who answers and who judges (`task_answers.py`).
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
    """How tasks are answered and judged, and what counts as worse."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    samples: int = Field(default=4, ge=1, description="Answers to each task.")
    max_tokens: int = Field(default=2048, ge=1, description="Bound on the tokens of one answer.")
    temperature: float = Field(default=1.0, ge=0, description="Sampling temperature.")
    seed: int = Field(
        default=0, ge=0, lt=2**31, description="Seed of the answers, and of the inputs that they are judged on."
    )
    num_correct_trials: int = Field(default=2, ge=1, description="Correctness trials behind one verdict.")
    concurrency: int = Field(default=16, ge=1, description="Answers, and verdicts, in flight at once.")
    bound: float = Field(default=0.05, ge=0, le=1, description="How far a share may fall before it counts as worse.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """What the judge said of the answers of one model."""

    rows: list[EvaluationRow]  # a group is a task
    num_unsupported: int  # answers that it cannot judge, which are left out


class Regression(msgspec.Struct, frozen=True, kw_only=True):
    """Figures before and after, by name, and the names of those that fell by more than the bound."""

    num_tasks: int
    num_answers: int
    bound: float
    before: dict[str, float]
    after: dict[str, float]
    worse: list[str]
    faults: dict[str, dict[str, int]]  # before and after → fault → answers
    unsupported: dict[str, int]  # before and after → answers that the judge cannot judge, left out

    @property
    def sentence(self) -> str:
        """What is to be said aloud."""
        fallen = [f"{name} fell from {self.before[name]:.2f} to {self.after.get(name, 0.0):.2f}" for name in self.worse]
        return f"regression: {', '.join(fallen)} (bound {self.bound:g})" if fallen else "no regression"


def compare(before: Verdicts, after: Verdicts, bound: float) -> Regression:
    """Hold the verdicts on the new weights' answers against those on the first ones'.

    Raises `TrainerUsageError` where none of them could be judged.
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
    """The shares that are compared: compile@1, correct@1, tasks solved more than p times as fast as the reference."""
    speed = {f"fast_{p}": share for p, share in metrics.get("fast_p", {}).items()}
    return {"compile@1": metrics["compile_at_k"]["1"], "correct@1": metrics["correct_at_k"]["1"], **speed}
