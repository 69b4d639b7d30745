"""The end of idle sessions in the catalog."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.idle_sessions import finish_idle_sessions, touch_sessions
from weir.store.clock import now_us
from weir.store.config import StoreConfig


def add_session(catalog: Catalog, session_id: str, *, idle_s: float = 0.0) -> None:
    """Register a session that was last active `idle_s` ago."""
    catalog.register_session(session_id, "g", task=None, group_size=None, metadata={}, key_hash=None)
    with catalog.writing().begin() as connection:
        of_it = t.sessions.update().where(t.sessions.c.session_id == session_id)
        connection.execute(of_it.values(active_us=now_us() - int(idle_s * 1e6)))


def test_what_was_idle_for_the_limit_ends_and_nothing_else(tmp_path: Path) -> None:
    catalog = Catalog.open(StoreConfig(root=tmp_path))
    for session_id, idle_s in (("idle", 700.0), ("active", 500.0), ("touched", 700.0), ("failed", 700.0)):
        add_session(catalog, session_id, idle_s=idle_s)
    catalog.finish_session("failed", status="failed", info={})
    assert touch_sessions(catalog, ["touched", "failed", "unknown"]) == {"touched"}
    assert finish_idle_sessions(catalog, 600.0) == ["idle"]
    assert finish_idle_sessions(catalog, 600.0) == []
    ended = catalog.find_session("idle")
    assert ended is not None and (ended.status, ended.info) == ("done", {"finished_by": "idleness", "idle_s": 600.0})
    catalog.finish_session("idle", status="done", info={})  # who comes later with the same status is not refused
    assert touch_sessions(catalog, ["idle"]) == set()
    failed = catalog.find_session("failed")
    assert failed is not None and failed.status == "failed"
    catalog.close()


def test_of_a_call_and_an_end_at_the_same_time_exactly_one_succeeds(either_catalog: StoreConfig) -> None:
    catalogs = [Catalog.open(either_catalog) for _ in range(2)]
    start = threading.Barrier(2)

    def touched(session_id: str) -> bool:
        start.wait()
        return session_id in touch_sessions(catalogs[0], [session_id])

    def finished(session_id: str) -> bool:
        start.wait()
        return session_id in finish_idle_sessions(catalogs[1], 600.0)

    with ThreadPoolExecutor(max_workers=2) as pool:
        for number in range(20):
            add_session(catalogs[0], f"s{number}", idle_s=700.0)
            outcomes = [pool.submit(touched, f"s{number}"), pool.submit(finished, f"s{number}")]
            assert sorted(outcome.result() for outcome in outcomes) == [False, True]
    for catalog in catalogs:
        catalog.close()
