"""The tree that a store returns is that of the recorded set, whatever was compacted, merged or recorded late."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weir.store.config import StoreConfig
from weir.store.log.writer import LogWriter
from weir.store.maintenance import merge
from weir.store.maintenance.compact import compact
from weir.store.parquet.columns import call_tokens
from weir.store.reader import connect, load_calls
from weir.store.records.call_record import CallRecord
from weir.store.records.tree import Link, link

PLACES = "SELECT call_id, parent_call, prefix_len, depth, root_call, role, twin_of, ambiguous FROM calls"
SESSIONS = ("s", "t")
BLOCKS = st.sampled_from([1, 100, 256])  # tokens for each symbol: sequences within a block, across blocks, at borders


@st.composite
def recorded_sets(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Calls that continue, repeat and resemble each other, over two sessions and clocks that disagree."""
    width, made = draw(BLOCKS), []
    symbols = st.lists(st.integers(0, 2), max_size=2)
    for i in range(draw(st.integers(2, 10))):
        base: list[int] = []
        if made and draw(st.booleans()):
            one = draw(st.sampled_from(made))
            base = one["prompt"] + one["output"] if draw(st.booleans()) else one["prompt"]
        grown = [id for symbol in draw(symbols) for id in [symbol] * width]
        output = [id for symbol in draw(symbols) for id in [symbol] * width]
        at = draw(st.integers(0, 8)) * 5_000
        made.append({"call_id": f"c{i}", "prompt": base + grown, "output": output, "at": at})
        made[-1]["session_id"] = draw(st.sampled_from(SESSIONS))
    return made


def expected(records: list[CallRecord]) -> dict[str, Link]:
    return link([call_tokens(record) for record in records])


def places(config: StoreConfig) -> dict[str, Link]:
    with connect(config) as db:
        rows = db.sql(PLACES).fetchall()
    names = ("parent_call", "prefix_len", "depth", "root_call", "role", "twin_of", "ambiguous")
    return {call_id: Link(**dict(zip(names, place, strict=True))) for call_id, *place in rows}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(recorded_sets(), st.randoms(use_true_random=False), st.integers(1, 3), st.integers(1, 5))
def test_the_tree_is_that_of_the_set_after_any_arrival_split_compaction_and_merge(
    tmp_path_factory: pytest.TempPathFactory,
    make_call: Any,
    made: list[dict[str, Any]],
    rng: Any,
    num_writers: int,
    batch: int,
) -> None:
    config = StoreConfig(root=tmp_path_factory.mktemp("trees"), segment_grace_s=0)
    records = [make_call(**one) for one in made]
    arriving = rng.sample(records, len(records))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "WIDTH", 2)
        for i in range(0, len(arriving), batch):
            log = LogWriter(config.root, f"proxy-{rng.randrange(num_writers)}", config)
            for future in [log.append(record) for record in arriving[i : i + batch]]:
                future.result()
            log.close()
            if rng.random() < 0.6:
                compact(config)
        assert places(config) == expected(records)
        compact(config)
    assert places(config) == expected(records)
    loaded = load_calls(config, SESSIONS)
    assert {call.call_id: call.parent_call for calls in loaded.values() for call in calls} == {
        call_id: place.parent_call for call_id, place in expected(records).items()
    }
