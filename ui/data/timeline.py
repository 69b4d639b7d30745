"""Rounds as a timeline: when each step of the latest rounds began and how long it took, in one lane a phase."""

from __future__ import annotations

import json
from typing import Any

import duckdb

from weir.ui.data.rows import Row, rows

ROUNDS_SHOWN = (1, 5, 20, 100)
WIDTH = 1000.0  # units of the picture
THINNEST = 2.5  # units: a step that is shorter in the picture can still be seen

LANES = {
    "claim": ("look_back", "read", "verify", "claim"),
    "judge": ("branches", "judge", "hooks", "advantages", "samples"),
    "train": ("load", "train"),
    "save": ("checkpoint", "share", "commit", "report"),
    "publish": ("publish",),
    "hold": ("gates_close", "engines_load", "engines_go_on", "gates_open"),
}
_LANE_OF = {step: lane for lane, steps in LANES.items() for step in steps}
_ROUNDS = """
SELECT round_id, weight_version AS version, CAST(metrics -> '$.timeline' AS VARCHAR) AS timeline
FROM rounds WHERE $newest IS NULL OR round_id <= $newest ORDER BY round_id DESC LIMIT $num
"""


def timeline(cursor: duckdb.DuckDBPyConnection, num_rounds: int, newest: int | None) -> dict[str, Any]:
    """The steps of the latest rounds up to `newest`, in lanes.

    `began` and `ended` are Unix seconds; `x` and `width` of a span are units of a picture 1,000 wide. Calls wait
    while something is in the lane `hold`. A round that was trained before steps were timed has no span, and one that
    trains now has none yet.
    """
    found = rows(cursor, _ROUNDS, {"num": num_rounds, "newest": newest})[::-1]
    spans = [span for row in found for span in _spans(row)]
    begins, ends = [span["began"] for span in spans], [span["began"] + span["seconds"] for span in spans]
    began, ended = min(begins, default=0.0), max(ends, default=0.0)
    for span in spans:
        span["x"] = round(WIDTH * (span["began"] - began) / max(ended - began, 1e-9), 2)
        span["width"] = round(max(WIDTH * span["seconds"] / max(ended - began, 1e-9), THINNEST), 2)
    timed = {span["round"] for span in spans}
    lanes = [{"name": name, "spans": [span for span in spans if span["lane"] == name]} for name in LANES]
    return {
        "began": began,
        "ended": ended,
        "lanes": lanes,
        "rounds": [
            {"round": row["round_id"], "version": row["version"], "seconds": _lane_seconds(row["round_id"], spans)}
            for row in found[::-1]
            if row["round_id"] in timed
        ],
        "untimed": [row["round_id"] for row in found if row["round_id"] not in timed],
        "num_rounds": num_rounds,
    }


def _spans(row: Row) -> list[Row]:
    return [
        {"round": row["round_id"], "lane": _LANE_OF[step], "step": step, "began": began, "seconds": seconds}
        for step, began, seconds in json.loads(row["timeline"] or "[]")
        if step in _LANE_OF
    ]


def _lane_seconds(number: int, spans: list[Row]) -> dict[str, float]:
    totals = dict.fromkeys(LANES, 0.0)
    for span in spans:
        if span["round"] == number:
            totals[span["lane"]] += span["seconds"]
    return totals
