"""The tables of docs/scale.md are the planner's, and every layout there divides its model and fits its GPUs."""

from __future__ import annotations

from pathlib import Path

from weir.scripts.models.scale_table import DEVICE_BYTES, ROWS, memory_lines, plan_of, traffic_lines
from weir.trainer.model.memory import usable

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
