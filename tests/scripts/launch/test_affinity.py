"""The router as `weir up` starts it for SGLang: a session's turns go to one engine, which has their prefix cached."""

from __future__ import annotations

import concurrent.futures
import json
from pathlib import Path
from typing import Any

import pytest
from support_proxy import RunningProxy, running_proxy
from support_servers import EngineFactory, ServerProcess, find_free_port

from weir.scripts.launch.fleet import router_server
from weir.scripts.launch.servers import running
from weir.scripts.launch.settings import RouterConfig

SESSIONS, TURNS = 8, 4


def converse(proxy: RunningProxy, name: str, turns: int) -> None:
    """A conversation of one registered session."""
    registered = proxy.control("POST", "/weir/sessions", {"session": name}).json()
    messages: list[Any] = []
    with proxy.client().with_options(base_url=registered["base_url"]) as client:
        for turn in range(turns):
            messages.append({"role": "user", "content": f"{name}, turn {turn}"})
            answer = client.chat.completions.create(model="weir", messages=messages, max_tokens=8)
            messages.append({"role": "assistant", "content": answer.choices[0].message.content})


def engines_of_sessions(proxy: RunningProxy, engines: list[ServerProcess]) -> dict[str, set[int]]:
    """Which engines sampled for each session, by the engines' own ledgers."""
    sampled: dict[str, int] = {}
    for number, engine in enumerate(engines):
        assert engine.ledger_path is not None
        rows = map(json.loads, engine.ledger_path.read_text().splitlines())
        sampled |= {row["rid"]: number for row in rows}
    found: dict[str, set[int]] = {}
    for record in proxy.records():
        found.setdefault(record.session_id, set()).update(sampled[rid] for rid in record.engine_rids if rid in sampled)
    return found


@pytest.mark.parametrize("kind", ["sglang-router", "smg"])
def test_the_turns_of_a_session_hit_one_engine_and_move_only_when_it_dies(
    tmp_path: Path, tiny_model_dir: Path, engine_server: EngineFactory, kind: Any
) -> None:
    engines = [engine_server(), engine_server()]
    config = RouterConfig(kind=kind, port=find_free_port(), prometheus_port=find_free_port())
    router = router_server(config, [engine.url for engine in engines], tmp_path / "logs", sticky=True)
    url = f"http://127.0.0.1:{config.port}"
    with running([router]), running_proxy(tmp_path / "store", tiny_model_dir, url, engine_check_s=0.2) as proxy:
        with concurrent.futures.ThreadPoolExecutor(SESSIONS) as pool:
            names = [f"s{number}" for number in range(SESSIONS)]
            list(pool.map(lambda name: converse(proxy, name, TURNS), names))
        found = engines_of_sessions(proxy, engines)
        assert sorted(found) == names
        assert all(len(used) == 1 for used in found.values()), found
        assert {number for used in found.values() for number in used} == {0, 1}, "both engines serve"
        [dead] = found["s0"]
        engines[dead].kill()
        converse(proxy, "s0", 1)
        assert engines_of_sessions(proxy, engines)["s0"] == {0, 1}
