"""The tables of docs/scale.md are the planner's, and every layout there divides its model and fits its GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from weir.scripts.models.scale_table import DEVICE_BYTES, ROWS, Row, memory_lines, plan_of, traffic_lines
from weir.trainer.model.division import Division
from weir.trainer.model.memory import TrainingPlan, training_memory, usable

PAGE = Path(__file__).parents[3] / "docs" / "scale.md"


def test_the_page_has_the_tables_of_the_planner() -> None:
    plans = [(row, plan_of(row)) for row in ROWS]
    text = PAGE.read_text()
    assert "\n".join(memory_lines(plans)) in text
    assert "\n".join(traffic_lines(plans)) in text
    for _, plan in plans:
        assert list(plan.problems()) == []
        assert plan.memory().peak <= usable(DEVICE_BYTES)
    assert [(row.model, row.gpus) for row in ROWS] == [
        ("Qwen3-8B", 1),
        ("Qwen3-8B", 8),
        ("Qwen3-8B", 64),
        ("Qwen3-30B-A3B", 8),
        ("GLM-4.5-Air", 64),
        ("DeepSeek-V3", 512),
    ]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.model}-{row.gpus}")
def test_what_a_round_is_planned_with_agrees_with_the_page(row: Row) -> None:
    """Two counts: part by part here, and for `weir round --plan` from a model's sizes with equal stages."""
    paper, layout = plan_of(row), row.layout
    division = Division(processes=row.gpus, **layout.sizes)
    plan = TrainingPlan(precision="bfloat16", tokens=row.tokens, checkpointing=True, division=division)
    planned, memory = training_memory(paper.shape, plan), paper.memory()
    whole = memory.weights + memory.gradients + memory.state + memory.host
    assert planned.weights + planned.gradients + planned.moments == pytest.approx(whole, rel=0.03)
    assert memory.activations < planned.activations < 2 * memory.activations, "a round counts a float32 residual stream"
