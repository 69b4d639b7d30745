"""A store that was written at schema version 3 can be read whole; what version 4 added is NULL.

`version_3/` holds two compacted calls of one session and the next two in its log.
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
ADDED = "asked_sampling, prompt_from, prompt_logprobs"


@pytest.mark.parametrize("compacted", [False, True])
def test_what_version_4_added_is_null_in_calls_of_version_3(config: StoreConfig, compacted: bool) -> None:
    shutil.copytree(Path(__file__).parent / "version_3", config.root)
    if compacted:
        assert compact(config).calls == 2
    with connect(config) as db:
        rows = db.sql(f"SELECT call_id, sampling->>'$.temperature', {ADDED} FROM calls ORDER BY call_id").fetchall()
    assert rows == [(call_id, "0.7", None, None, None) for call_id in CALLS]
    calls = load_calls(config, ["session_1"])["session_1"]
    assert [(call.call_id, call.tokenizer, call.prompt_logprobs) for call in calls] == [
        (call_id, "0123456789abcdef", None) for call_id in CALLS
    ]
    assert calls[3].prompt_ids.tolist() == [1, 2, 3, 10, 20, 31, 11, 21, 32, 12, 22, 33]
    catalog = Catalog.open(config)
    record = StoredCalls(config, catalog).read("call_1")
    session = catalog.find_session("session_1")
    catalog.close()
    assert record is not None and (record.asked_sampling, record.prompt_from, record.prompt_logprobs) == ({}, None, b"")
    assert session is not None and (session.status, session.active_us) == ("done", None)
