"""Sessions that nobody finishes: they end by idleness, once, and never while a call is in flight."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from support_proxy import RunningProxy, running_proxy
from support_scripted_engine import Script
from support_way import Way, ids_of

from weir.store.catalog import schema as t
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.ready_groups import ready_groups
from weir.store.clock import now_us
from weir.store.config import StoreConfig

BODY: Any = {"model": "weir", "messages": [{"role": "user", "content": "Hi"}]}
ENDED = {"finished_by": "idleness", "idle_s": 1.0}


def add_session(catalog: Catalog, session_id: str, *, idle_s: float = 0.0) -> None:
    """Register a session that was last active `idle_s` ago."""
    catalog.register_session(session_id, "g", task=None, group_size=None, metadata={}, key_hash=None)
    with catalog.writing().begin() as connection:
        of_it = t.sessions.update().where(t.sessions.c.session_id == session_id)
        connection.execute(of_it.values(active_us=now_us() - int(idle_s * 1e6)))


def ask(proxy: RunningProxy, session_id: str) -> int:
    return proxy.post(f"/s/{session_id}/v1/chat/completions", BODY).status_code


def shown(proxy: RunningProxy, session_id: str) -> dict[str, Any]:
    found: dict[str, Any] = proxy.control("GET", f"/weir/sessions/{session_id}").json()
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.05)


def test_a_silent_session_ends_its_group_is_ready_and_later_calls_are_refused(open_way: Callable[..., Way]) -> None:
    way = open_way(idle_finish_s=1.0)
    way.say("Hello.")
    way.proxy.control("POST", "/weir/sessions", {"session": "a", "group": "g", "group_size": 1, "task": {"x": 1}})
    assert ask(way.proxy, "a") == 200
    assert ask(way.proxy, "unregistered") == 200
    wait_until(lambda: shown(way.proxy, "a")["status"] is not None)
    assert (shown(way.proxy, "a")["status"], shown(way.proxy, "a")["info"]) == ("done", ENDED)
    catalog = Catalog.open(way.proxy.store)
    assert [(group.group_id, group.session_ids) for group in ready_groups(catalog)] == [("g", ["a"])]
    catalog.close()
    refused = way.proxy.post("/s/a/v1/chat/completions", BODY)
    wait_until(lambda: ask(way.proxy, "a") == 403)
    assert refused.status_code in (200, 403)
    assert ask(way.proxy, "unregistered") == 200
    assert "weir_sessions_idle_total 1.0" in way.proxy.control("GET", "/metrics").text


def test_a_call_in_flight_keeps_its_session_at_another_proxy_and_a_restart_ends_what_was_left(
    open_way: Callable[..., Way], tiny_model_dir: Path
) -> None:
    """A's call waits in the engine for more than the limit, while B ends sessions of the same store."""
    way = open_way(idle_finish_s=1.0)
    ids = ids_of("Hello.")
    root = way.proxy.store.root
    for session_id in ("long", "witness"):
        way.proxy.control("POST", "/weir/sessions", {"session": session_id, "group": "g"})
    with running_proxy(root, tiny_model_dir, way.router.url, idle_finish_s=1.0) as other:
        way.say(Script(ids=ids, matched=ids[-1], cut="wait", cut_after=2))
        with ThreadPoolExecutor(max_workers=1) as pool:
            asked = pool.submit(ask, way.proxy, "long")
            way.engine.wait_waiting()
            wait_until(lambda: shown(other, "witness")["status"] == "done")  # as idle for as long as "long" is
            for number in range(2):  # two more limits go by
                other.control("POST", "/weir/sessions", {"session": f"witness{number}", "group": "g"})
                wait_until(lambda number=number: shown(other, f"witness{number}")["status"] == "done")  # type: ignore[misc]
            assert shown(other, "long")["status"] is None
            way.engine.go_on()
            assert asked.result() == 200
        other.control("POST", "/weir/sessions", {"session": "left", "group": "g"})
        wait_until(lambda: shown(other, "long")["status"] == "done")
    later = Catalog.open(StoreConfig(root=root))
    add_session(later, "from before", idle_s=60.0)
    later.close()
    with running_proxy(root, tiny_model_dir, way.router.url, idle_finish_s=1.0) as restarted:
        wait_until(lambda: shown(restarted, "from before")["info"] == ENDED)


def test_without_a_limit_no_session_ends_by_itself(way: Way) -> None:
    way.say("Hello.")
    way.proxy.control("POST", "/weir/sessions", {"session": "a", "group": "g"})
    assert ask(way.proxy, "a") == 200
    row = way.proxy.proxy.catalog.find_session("a")
    assert row is not None and (row.status, row.active_us) == (None, None)
