"""Stores that were written at schema versions 3 to 8 can be read whole; what later versions added is absent.

Each `version_N/` holds two compacted calls of one session and the next two in its log. Versions 1 and 2 have files of
their own, because their stores hold more.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.maintenance.compact import compact
from weir.store.query.stored_call import StoredCalls
from weir.store.reader import connect, load_calls

CALLS = ["call_0", "call_1", "call_2", "call_3"]
TOP = ["top_ids", "top_logprobs"]
ENGINE = "engine_settings"
ROUTED = ["routed_from", "routed_choices", "routed_experts"]
# Columns that the version has, with their value in every call; columns that it lacks; fields of the record `call_1`.
VERSIONS: dict[int, tuple[dict[str, Any], list[str], dict[str, Any]]] = {
    3: (
        {"sampling->>'$.temperature'": "0.7"},
        ["asked_sampling", "prompt_from", "prompt_logprobs", "sampling_logprobs", "ignored_fields", *TOP, ENGINE],
        {"asked_sampling": {}, "prompt_from": None, "prompt_logprobs": b"", "tokenizer": "0123456789abcdef"},
    ),
    4: (
        {"asked_sampling->>'$.top_p'": "1.0", "prompt_from": 1},
        ["sampling_logprobs", "ignored_fields", *TOP, ENGINE],
        {"sampling_logprobs": b""},
    ),
    5: (
        {"asked_sampling->>'$.top_p'": "1.0", "sampling_logprobs": [-0.25, -0.25]},
        ["ignored_fields", *TOP, ENGINE],
        {"ignored_fields": ()},
    ),
    6: (
        {"asked_sampling->>'$.top_p'": "1.0", "ignored_fields": ["reasoning.summary"]},
        [*TOP, ENGINE],
        {"ignored_fields": ("reasoning.summary",), "top_ids": b"", "top_logprobs": b""},
    ),
    7: (
        {"top_ids": [10, 20], "top_logprobs": [-0.5, -1.0], "ignored_fields": ["reasoning.summary"]},
        [ENGINE, "engine_digest", *ROUTED],
        {"engine_settings": ""},
    ),
    8: (
        {"engine_settings->>'$[0].dtype'": "float32", "top_ids": [10, 20]},
        ROUTED,
        {"routed_from": None, "routed_choices": None, "routed_experts": b""},
    ),
}
NEW_VIEWS = ("refusals", "lost_calls", "actions")


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest, config: StoreConfig) -> int:
    """A version, with a copy of its store in place of the empty one."""
    shutil.copytree(Path(__file__).parent / f"version_{request.param}", config.root)
    return int(request.param)


@pytest.mark.parametrize("compacted", [False, True])
def test_an_old_store_reads_whole_and_what_later_versions_added_is_absent(
    config: StoreConfig, version: int, compacted: bool
) -> None:
    has, lacks, fields = VERSIONS[version]
    if compacted:
        assert compact(config).calls == 2
    with connect(config) as db:
        rows = db.sql(f"SELECT call_id, {', '.join([*has, *lacks])} FROM calls ORDER BY call_id").fetchall()
        assert [db.sql(f"FROM {view}").fetchall() for view in NEW_VIEWS] == [[] for _ in NEW_VIEWS]
    assert rows == [(call_id, *has.values(), *[None] * len(lacks)) for call_id in CALLS]
    calls = load_calls(config, ["session_1"])["session_1"]
    assert [call.call_id for call in calls] == CALLS
    assert calls[3].prompt_ids.tolist() == [1, 2, 3, 10, 20, 31, 11, 21, 32, 12, 22, 33]
    assert calls[3].output_logprobs.tolist()[0] == -0.5
    catalog = Catalog.open(config)
    record = StoredCalls(config, catalog).read("call_1")
    catalog.close()
    assert record is not None and {name: getattr(record, name) for name in fields} == fields


@pytest.mark.parametrize("version", [3], indirect=True)
def test_when_an_old_session_was_last_active_is_unknown(config: StoreConfig, version: int) -> None:
    catalog = Catalog.open(config)
    session = catalog.find_session("session_1")
    catalog.close()
    assert session is not None and (session.status, session.active_us) == ("done", None)
