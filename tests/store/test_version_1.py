"""A store that was written at schema version 1 can be read, in SQL and whole, and takes newer records.

`version_1/` holds two compacted calls of one session and the next two in its log, and a reward.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from weir.store.config import StoreConfig
from weir.store.log.segment_format import list_segments, read_segment
from weir.store.maintenance.compact import compact
from weir.store.reader import connect, load_calls
from weir.store.records.call_record import SCHEMA_VERSION

CALLS = ["call_0", "call_1", "call_2", "call_3"]


@pytest.fixture
def old(config: StoreConfig) -> StoreConfig:
    """A copy of the old store."""
    shutil.copytree(Path(__file__).parent / "version_1", config.root)
    return config


def rows(config: StoreConfig, query: str) -> list[tuple[Any, ...]]:
    with connect(config) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.parametrize("compacted", [False, True])
def test_calls_of_version_1_read_whole_and_in_sql(old: StoreConfig, compacted: bool) -> None:
    if compacted:
        compact(old)
    calls = load_calls(old, ["session_1"])["session_1"]
    assert [call.call_id for call in calls] == CALLS
    assert [call.parent_call for call in calls] == [None, *CALLS[:-1]]
    assert calls[3].prompt_ids.tolist() == [1, 2, 3, 10, 20, 30, 11, 21, 31, 12, 22, 32]
    query = "SELECT call_id, text, version_max, depth, request_id, choice, cached_tokens, digest FROM calls ORDER BY 1"
    assert rows(old, query) == [(CALLS[n], f"answer {n}", 3, n, None, 0, None, None) for n in range(4)]
    assert rows(old, "SELECT reward FROM sessions") == [(0.5,)]


def test_a_record_of_version_1_says_so(old: StoreConfig) -> None:
    (segment,) = list_segments(old.log_dir)
    assert [record.schema for record in read_segment(segment.path).records] == [1, 1]


def test_an_old_store_goes_on_with_records_of_today(old: StoreConfig, record: Any, make_call: Any) -> None:
    prompt = [1, 2, 3, 10, 20, 30, 11, 21, 31, 12, 22, 32, 13, 23, 33]
    names = {"session_id": "session_1", "group_id": "group_1", "request_id": "request_1", "choice": 1}
    counts = {"cached_tokens": 5, "num_messages": 3, "retry_count": 2, "forced": 1}
    record([make_call("call_4", prompt, [7], at=9_000_000, digest=b"0123456789abcdef", **names, **counts)])
    columns = "call_id, request_id, choice, cached_tokens, num_messages, retry_count, forced_tokens, digest"
    query = f"SELECT {columns}, parent_call FROM calls ORDER BY 1"
    today = ("call_4", "request_1", 1, 5, 3, 2, 1, b"0123456789abcdef".hex(), "call_3")
    assert rows(old, query)[4] == today
    compact(old)
    found = rows(old, query)
    assert found[4] == today
    assert found[0] == ("call_0", None, 0, None, None, None, 0, None, None)
    assert rows(old, "SELECT count(*), min(schema_version), max(schema_version) FROM stored.calls") == [
        (5, 1, SCHEMA_VERSION)
    ]
