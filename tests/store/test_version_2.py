"""A store that was written at schema version 2 can be read whole; fields of later versions are empty.

`version_2/` holds two compacted calls of one session and the next two in its log, a reward and an evaluation.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.errors import SchemaTooNew
from weir.store.maintenance.compact import compact
from weir.store.maintenance.verify import verify
from weir.store.reader import connect, load_calls
from weir.store.status import store_status

CALLS = ["call_0", "call_1", "call_2", "call_3"]
RECORDED = """SELECT call_id, parent_call, text, output_ids, output_logprobs, spans[2].label, held_ms, finish_matched,
    CAST(sampling AS VARCHAR), request_id, choice, cached_tokens, digest, num_messages, retry_count,
    counted_prompt_tokens, counted_output_tokens, forced_tokens FROM calls ORDER BY call_id"""


@pytest.fixture
def old(config: StoreConfig) -> StoreConfig:
    """A copy of the old store."""
    shutil.copytree(Path(__file__).parent / "version_2", config.root)
    return config


def expected(n: int) -> tuple[Any, ...]:
    """Call n, as it was recorded."""
    parent = CALLS[n - 1] if n else None
    said = (CALLS[n], parent, f"answer {n}", [10 + n, 20 + n], [-0.5, -1.0], "4", 0.007, "2", '{"temperature":0.7}')
    return (*said, f"request_{n}", n % 2, n, (bytes([n]) * 16).hex(), 1, n, 3, 2, 1)


@pytest.mark.parametrize("compacted", [False, True])
def test_every_column_of_version_2_reads(old: StoreConfig, compacted: bool) -> None:
    if compacted:
        compact(old)
    with connect(old) as db:
        assert db.sql(RECORDED).fetchall() == [expected(n) for n in range(4)]
        assert db.sql("SELECT reward, num_turns, reward_mean FROM sessions").fetchall() == [(0.5, 4, 0.5)]
        assert db.sql("SELECT call_id, fault FROM evaluations").fetchall() == [("call_0", "wrong")]
        assert db.sql("SELECT len(ids), list_sum(mask) FROM sequences('first')").fetchall() == [(14, 8)]
    calls = load_calls(old, ["session_1"])["session_1"]
    assert [call.call_id for call in calls] == CALLS
    assert calls[3].prompt_ids.tolist() == [1, 2, 3, 10, 20, 30, 11, 21, 31, 12, 22, 32]
    assert calls[3].versions.tolist() == [3, 4]


def test_a_file_of_a_later_version_is_refused_by_all_that_read_or_change_files(old: StoreConfig) -> None:
    catalog = Catalog.open(old)
    with catalog.writing().begin() as connection:
        connection.execute(sa.update(t.files).values(schema_version=99))
    catalog.close()
    uses = (connect, lambda store: load_calls(store, ["session_1"]), compact, store_status, verify)
    for use in uses:
        with pytest.raises(SchemaTooNew, match="schema version 99, this Weir knows up to"):
            use(old)
