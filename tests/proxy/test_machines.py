"""Two proxies and a trainer on PostgreSQL and S3 at once, one proxy killed and replaced: as one process would do it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import openai
import pytest
from support_rounds import make_task, run_in_process, scripted_judge, trainer_config
from support_router import Router
from support_s3 import S3Server
from support_scripted_engine import Script, ScriptedEngine
from support_way import ids_of, text_of

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.shared_segments import catalog_time_us, log_writers
from weir.store.config import StoreConfig
from weir.store.maintenance.compact import compact
from weir.store.reader import connect, load_calls
from weir.trainer.versions.object_store import fetch_newest
from weir.trainer.versions.version_folder import current_version

COMMAND = "import typer; from weir.scripts.cli.commands.servers import proxy; typer.run(proxy)"
KEY = "the-control-key-of-tests"
GROUPS = ("g1", "g2", "g3")
TURNS = 3

Call = tuple[list[int], list[int], int | None]  # prompt, output, and the parent's place among the session's calls


class Proxy:
    """`weir proxy` in a process of its own."""

    def __init__(self, store: StoreConfig, model: Path, upstream: str, folder: Path) -> None:
        options = ["--upstream", upstream, "--model", str(model), "--port", "0"]
        settings = store.model_dump(mode="json", exclude_unset=True) | {"seal_age_s": 1}
        environment = {f"WEIR_STORE__{name.upper()}": str(value) for name, value in settings.items()}
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *options],
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=os.environ | environment | {"WEIR_PROXY__CONTROL_KEY": KEY},
        )
        assert self.process.stdout is not None
        found = re.match(r"base_url (\S+)/v1 ", self.process.stdout.readline())
        assert found
        self.url = found[1]

    def control(self, path: str, body: dict[str, Any]) -> None:
        headers = {"authorization": f"Bearer {KEY}"}
        httpx.post(f"{self.url}{path}", json=body, headers=headers, trust_env=False, timeout=60).raise_for_status()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Agent:
    """The conversation of one session, which any turn may continue at another proxy."""

    def __init__(self, group: str, number: int) -> None:
        self.group, self.number = group, number
        self.session = f"{group}-{number}"
        self.messages: list[Any] = []

    def begin(self, proxy: Proxy) -> None:
        task = msgspec.to_builtins(make_task(self.group))
        proxy.control("/weir/sessions", {"session": self.session, "group": self.group, "task": task, "group_size": 2})

    def ask(self, proxy: Proxy, turns: int = 1) -> None:
        base_url = f"{proxy.url}/g/{self.group}/s/{self.session}/v1"
        client = openai.OpenAI(base_url=base_url, api_key="agent", max_retries=0, timeout=60)
        for _ in range(turns):
            text = f"Turn {len(self.messages) // 2} of {self.session}"
            self.messages.append({"role": "user", "content": text})
            answer = client.chat.completions.create(model="weir", messages=self.messages)
            self.messages.append(answer.choices[0].message.model_dump(exclude_none=True))

    def end(self, proxy: Proxy) -> None:
        proxy.control(f"/weir/sessions/{self.session}/finish", {"status": "done"})


def answer(body: dict[str, Any]) -> Script:
    """A candidate whose reward depends on the session, in ids that no tokenizer gives for its text."""
    first = re.search(r"of g\d-(\d)", text_of(body["input_ids"]))
    assert first
    text = f"```\nreward={'1.0' if first[1] == '1' else '0.3'} {len(body['input_ids'])}\n```"
    return Script(ids=[token for letter in text for token in ids_of(letter)[:-1]] + ids_of(""))


@pytest.fixture
def begin(
    scripted: tuple[ScriptedEngine, Router], tiny_model_dir: Path, tmp_path: Path
) -> Iterator[Callable[[StoreConfig], Proxy]]:
    """Starts a proxy over a store."""
    scripted[0].script = answer
    started: list[Proxy] = []

    def start(store: StoreConfig) -> Proxy:
        started.append(Proxy(store, tiny_model_dir, scripted[1].url, tmp_path))
        return started[-1]

    yield start
    for proxy in started:
        proxy.kill()


@contextmanager
def training(store: StoreConfig, model: Path) -> Iterator[None]:
    """A trainer that takes every group it can get, until the block ends."""
    ended = threading.Event()
    codes: list[int | None] = []

    def train() -> None:
        with scripted_judge() as judge:
            while not ended.is_set():
                codes.append(run_in_process(trainer_config(judge, groups_per_round=1), store, model, rounds=None))

    thread = threading.Thread(target=train)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert set(codes) == {0}


def trees(store: StoreConfig) -> dict[str, list[Call]]:
    """Every session's calls, with their tokens and parents, without the ids that differ between runs."""
    found = load_calls(store, [f"{group}-{number}" for group in GROUPS for number in (0, 1)])
    return {
        session: [
            (
                call.prompt_ids.tolist(),
                call.output_ids.tolist(),
                next((i for i, parent in enumerate(calls) if parent.call_id == call.parent_call), None),
            )
            for call in calls
        ]
        for session, calls in found.items()
    }


def counts(store: StoreConfig) -> list[tuple[object, ...]]:
    """Calls and tokens by session, depth and role."""
    query = """SELECT session_id, depth, role, count(*), sum(num_prompt_tokens), sum(num_output_tokens)
               FROM calls GROUP BY ALL ORDER BY ALL"""
    with connect(store) as db:
        return db.execute(query).fetchall()


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.1)


def in_one_process(store: StoreConfig, begin: Callable[[StoreConfig], Proxy]) -> None:
    proxy = begin(store)
    for agent in [Agent(group, number) for group in GROUPS for number in (0, 1)]:
        agent.begin(proxy)
        agent.ask(proxy, TURNS)
        agent.end(proxy)


def in_many(machine: Callable[[str], StoreConfig], begin: Callable[[StoreConfig], Proxy], catalog: Catalog) -> None:
    """The same conversations at two proxies, of which the first is killed while four of them are on their way."""
    first, second = begin(machine("a")), begin(machine("b"))
    agents = {agent.session: agent for agent in [Agent(group, number) for group in GROUPS for number in (0, 1)]}
    for agent in agents.values():
        agent.begin(second)

    def talk(session: str, proxy: Proxy, turns: int) -> None:
        agents[session].ask(proxy, turns)
        if len(agents[session].messages) == 2 * TURNS:
            agents[session].end(proxy)

    with ThreadPoolExecutor(2) as pool:
        one = pool.map(lambda part: talk(part[0], first, part[1]), [("g1-0", 3), ("g2-0", 2), ("g3-0", 1)])
        two = pool.map(lambda part: talk(part[0], second, part[1]), [("g1-1", 3), ("g2-1", 1), ("g3-1", 2)])
        list(one), list(two)
    first.kill()
    killed = {row.writer for row in log_writers(catalog) if row.writer.endswith(f"-{first.process.pid}")}
    assert killed
    first = begin(machine("a"))
    talk("g2-0", first, 1)  # from the log that the killed process left on its machine
    talk("g2-1", second, 2)
    compact(machine("b"))
    wait_until(lambda: not killed & {row.writer for row in log_writers(catalog)})
    talk("g3-0", second, 2)  # from what the new process shared of it
    compact(machine("a"))
    now = catalog_time_us(catalog)
    wait_until(lambda: all(row.shared_us > now for row in log_writers(catalog)))
    talk("g3-1", first, 1)


def test_two_proxies_and_a_trainer_at_once_leave_what_one_process_leaves(
    begin: Callable[[StoreConfig], Proxy], s3: S3Server, postgres_url: str, tiny_model_dir: Path, tmp_path: Path
) -> None:
    shared = {"root": s3.new_root(), "s3_endpoint": s3.url, "catalog_url": postgres_url, "segment_grace_s": 5}

    def machine(name: str) -> StoreConfig:
        return StoreConfig.model_validate({**shared, "local_folder": tmp_path / name})

    alone = StoreConfig(root=tmp_path / "alone")
    in_one_process(alone, begin)
    catalog = Catalog.open(machine("watching"))
    with training(machine("trainer"), tiny_model_dir):
        in_many(machine, begin, catalog)
        wait_until(lambda: sum(row.state == "committed" for row in catalog.rounds()) == len(GROUPS))
    assert sorted(group for row in catalog.rounds() for group in row.group_ids) == list(GROUPS)
    assert all(row.metrics["calls"] == 2 * TURNS for row in catalog.rounds() if row.metrics)
    catalog.close()
    assert trees(machine("new")) == trees(alone)
    assert counts(machine("new")) == counts(alone)
    assert {parent for calls in trees(alone).values() for _, _, parent in calls} == {None, 0, 1}
    fetch_newest(machine("new"))
    newest = current_version(machine("new").folder)
    assert newest is not None and newest.manifest.version == len(GROUPS)
