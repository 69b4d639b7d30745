"""A store that was written at schema version 5 can be read whole; what version 6 added is NULL.

`version_5/` holds two compacted calls of one session and the next two in its log.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.maintenance.compact import compact
from weir.store.query.stored_call import StoredCalls
from weir.store.reader import connect, load_calls

CALLS = ["call_0", "call_1", "call_2", "call_3"]


@pytest.mark.parametrize("compacted", [False, True])
def test_what_version_6_added_is_null_in_calls_of_version_5(config: StoreConfig, compacted: bool) -> None:
    shutil.copytree(Path(__file__).parent / "version_5", config.root)
    if compacted:
        assert compact(config).calls == 2
    with connect(config) as db:
        rows = db.sql(
            "SELECT call_id, asked_sampling->>'$.top_p', sampling_logprobs, ignored_fields FROM calls ORDER BY call_id"
        ).fetchall()
    assert rows == [(call_id, "1.0", [-0.25, -0.25], None) for call_id in CALLS]
    calls = load_calls(config, ["session_1"])["session_1"]
    assert calls[3].prompt_ids.tolist() == [1, 2, 3, 10, 20, 31, 11, 21, 32, 12, 22, 33]
    catalog = Catalog.open(config)
    record = StoredCalls(config, catalog).read("call_1")
    catalog.close()
    assert record is not None and record.ignored_fields == ()
