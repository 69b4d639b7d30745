"""pass@k, compile@k, fast_p and speedups from evaluations in a catalog, compared with figures computed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.rows import EvaluationRow
from weir.store.config import StoreConfig
from weir.store.reader import connect

# A verdict in the form before verdicts had a field for the speedup.
EARLIER = Path(__file__).parent / "earlier_verdict.json"


def evaluation(
    group: str, index: int, *, compiled: bool, correct: bool, speedup: float | None = None, result: Any = None
) -> EvaluationRow:
    return EvaluationRow(
        call_id=f"{group}{index}",
        session_id=f"{group}{index}",
        group_id=group,
        round_id=1,
        content_hash="h",
        compiled=compiled,
        correct=correct,
        fault=None if correct else "output_mismatch",
        raw_reward=1.0,
        result={"speedup": speedup, "details": {}} if result is None else result,
        created_us=1,
    )


def test_chances_and_speeds_are_those_of_the_papers(config: StoreConfig) -> None:
    rows = [
        evaluation("a", 0, compiled=True, correct=True, speedup=2.0),
        evaluation("a", 1, compiled=True, correct=False, speedup=None),
        evaluation("a", 2, compiled=True, correct=False, speedup=None),
        evaluation("a", 3, compiled=False, correct=False, speedup=None),
        evaluation("b", 0, compiled=True, correct=True, speedup=0.5),
        evaluation("b", 1, compiled=False, correct=False, speedup=None),
        evaluation("c", 0, compiled=False, correct=False, speedup=None),
    ]
    catalog = Catalog.open(config)
    catalog.add_evaluations(rows)
    catalog.close()
    db = connect(config)
    chances = db.sql("select * from pass_at_k").fetchall()
    assert [row[:2] for row in chances] == [(1, 3), (2, 2), (4, 1)]
    assert [row[2] for row in chances] == pytest.approx([(0.25 + 0.5 + 0.0) / 3, (0.5 + 1.0) / 2, 1.0])
    assert [row[3] for row in chances] == pytest.approx([(0.75 + 0.5 + 0.0) / 3, 1.0, 1.0])
    fast = {float(p): share for p, _, share in db.sql("select * from fast_p").fetchall()}
    assert fast == pytest.approx({0.0: 2 / 3, 0.5: 1 / 3, 0.8: 1 / 3, 1.0: 1 / 3, 1.5: 1 / 3, 2.0: 0.0})
    ((round_id, measured, mean, deviation, quantiles),) = db.sql("select * from speedups").fetchall()
    assert (round_id, measured, mean, deviation, quantiles[2]) == (1, 2, 0.0, 1.0, 0.0)


def test_a_speedup_is_read_from_verdicts_of_today_and_of_before(config: StoreConfig) -> None:
    earlier = json.loads(EARLIER.read_text())
    assert "speedup" not in earlier
    results = {
        "of today": {**earlier, "speedup": 3.5},
        "of before": earlier,
        "not counted": {**earlier, "speedup": None},
        "not timed before": {**earlier, "details": {}},
    }
    catalog = Catalog.open(config)
    catalog.add_evaluations(
        [evaluation(name, 0, compiled=True, correct=True, result=result) for name, result in results.items()]
    )
    catalog.close()
    found = dict(connect(config).sql("select group_id, speedup from evaluations").fetchall())
    assert found == {"of today": 3.5, "of before": 1.75, "not counted": None, "not timed before": None}
