"""A small cluster for `weir train`: real engines, router and proxy over a tiny model; agents reward themselves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from support_servers import find_free_port

from weir.proxy.engines.router import RouterClient
from weir.scripts.launch.fleet import fleet
from weir.scripts.launch.servers import Server, free_ports_in_row, running, start
from weir.scripts.launch.settings import Settings, load_settings
from weir.store.catalog.catalog import Catalog, RoundRow
from weir.store.catalog.cluster.members import PhaseRow, members, phases
from weir.store.reader import connect

AGENT = """
import asyncio
import os
import random
import subprocess
from openai import AsyncOpenAI

async def solve(task, base_url, api_key, config):
    client = AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0)
    messages = [{"role": "user", "content": "abc"}]
    for _ in range(2):
        answer = await client.chat.completions.create(model="weir", messages=messages, max_tokens=config.max_tokens)
        messages += [{"role": "assistant", "content": answer.choices[0].message.content or ""},
                     {"role": "user", "content": "go on"}]
        if task.task_id in os.environ.get("STRAGGLERS_OF_THE_TEST", "").split():
            await asyncio.sleep(3600)
    await client.close()
    print("an agent prints")
    subprocess.run(["echo", "and so does a process of its own"], check=True)
    return {"turns": 2, "rewards": {"score": random.random()}}
"""


@dataclass(kw_only=True)
class Cluster:
    """Running servers, and the folder that `weir train` runs in."""

    folder: Path
    settings: Settings
    servers: list[Server]
    processes: list[subprocess.Popen[bytes]]
    trains: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def train(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start `weir train`; its log begins anew."""
        command = [sys.executable, "-m", "weir.scripts.cli.main", "train", "--config", str(self.folder / "weir.toml")]
        command += ["--tasks", str(self.folder / "tasks.jsonl"), "--agent", "agent_of_the_test:solve", *arguments]
        with (self.folder / "train.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
            )
        self.trains.append(process)
        return process

    @property
    def log(self) -> str:
        """What `weir train` has printed."""
        return (self.folder / "train.log").read_text()

    @property
    def engine_urls(self) -> list[str]:
        """The engines."""
        return [member.url for member in self.settings.cluster.members if member.url is not None]

    def rounds(self) -> list[RoundRow]:
        """The committed rounds."""
        with contextlib.closing(Catalog.open(self.settings.store)) as catalog:
            return [row for row in catalog.rounds() if row.state == "committed"]

    def phase_of(self, member: str) -> str:
        """What a member is at, as the catalog has it."""
        with contextlib.closing(Catalog.open(self.settings.store)) as catalog:
            return next(row.phase for row in members(catalog) if row.name == member)

    def phases(self) -> list[PhaseRow]:
        """What members did and do, in order."""
        with contextlib.closing(Catalog.open(self.settings.store)) as catalog:
            return phases(catalog)

    def has_open_round(self) -> bool:
        """Whether a round is claimed and not committed."""
        with contextlib.closing(Catalog.open(self.settings.store)) as catalog:
            return catalog.open_round() is not None

    def made(self, number: int) -> Callable[[], bool]:
        """Whether so many rounds more than now are committed."""
        wanted = len(self.rounds()) + number
        return lambda: len(self.rounds()) >= wanted

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query over the store."""
        with connect(self.settings.store) as db:
            return db.sql(query).fetchall()

    def in_rotation(self) -> set[str]:
        """The engines that the router lists."""
        url = f"http://127.0.0.1:{self.settings.router.port}/workers"
        return {worker["url"].rstrip("/") for worker in httpx.get(url, trust_env=False, timeout=120).json()["workers"]}

    def take_out(self, engine: str) -> None:
        """Take an engine out of the router's rotation."""

        async def take_out() -> None:
            router = RouterClient(f"http://127.0.0.1:{self.settings.router.port}")
            await router.take_out(engine)
            await router.close()

        asyncio.run(take_out())

    def gate(self) -> str:
        """The state of the proxy's gate."""
        key = (self.settings.store.folder / "control.key").read_text().strip()
        url = f"http://127.0.0.1:{self.settings.proxy.port}/weir/state"
        answer = httpx.get(url, headers={"authorization": f"Bearer {key}"}, trust_env=False, timeout=120)
        return str(answer.json()["gate"])

    def kill(self, name: str) -> None:
        """kill -9 of a server, and its start anew, as `weir up` does it."""
        place = next(i for i, server in enumerate(self.servers) if server.name == name)
        self.processes[place].kill()
        self.processes[place].wait()
        self.processes[place] = start(self.servers[place])

    def child(self, module: str) -> psutil.Process:
        """The process of that module below the last `weir train`."""
        for each in psutil.Process(self.trains[-1].pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if module in each.cmdline():
                    return each
        raise AssertionError(f"no {module} below weir train")

    def call_until(self, over: Callable[[], bool]) -> tuple[int, list[str]]:
        """Make one call after the other until something is over: how many were answered, and the other answers."""
        url = f"http://127.0.0.1:{self.settings.proxy.port}/v1/chat/completions"
        body = {"model": "weir", "messages": [{"role": "user", "content": "abc"}], "max_tokens": 48}
        answered, failed = 0, []
        with httpx.Client(trust_env=False, timeout=300) as client:
            while not over():
                answer = client.post(url, json=body)
                answered += answer.status_code == 200
                failed += [answer.text] if answer.status_code != 200 else []
        return answered, failed

    def serve_once(self) -> str:
        """One session of a product, with the tag `serve`, its answer and its reward; returns its group."""
        proxy = f"http://127.0.0.1:{self.settings.proxy.port}"
        key = (self.settings.store.folder / "control.key").read_text().strip()
        with httpx.Client(trust_env=False, timeout=300, headers={"authorization": f"Bearer {key}"}) as control:

            def told(path: str, body: dict[str, Any]) -> dict[str, Any]:
                answer: dict[str, Any] = control.post(f"{proxy}/weir/{path}", json=body).raise_for_status().json()
                return answer

            session = told("sessions", {"tags": ["serve"], "group_size": 1, "task": {"prompt": "abc"}})
            body = {"model": "weir", "messages": [{"role": "user", "content": "abc"}], "max_tokens": 8}
            headers = {"authorization": f"Bearer {session['api_key']}"}
            control.post(f"{proxy}/v1/chat/completions", json=body, headers=headers).raise_for_status()
            told(f"sessions/{session['session']}/finish", {})
            reward = {"session": session["session"], "name": "score", "value": 1.0, "source": "product"}
            told("rewards", reward | {"idempotency_key": "1"})
        return str(session["group"])

    def wait(self, holds: Callable[[], object], limit_s: float = 240) -> None:
        """Return once something holds; fails where `weir train` ended before."""
        deadline = time.monotonic() + limit_s
        while not holds():
            assert self.trains[-1].poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)

    def ended(self, limit_s: float = 300) -> str:
        """What the last `weir train` printed in all; it must have ended well."""
        try:
            assert self.trains[-1].wait(limit_s) == 0, self.log
        except subprocess.TimeoutExpired:
            raise AssertionError(self.log) from None
        return self.log


MEMBERS = ("only", "both-1", "both-2")  # the first only generates, the others do both


def config_of(
    folder: Path, model: Path, names: Sequence[str], engine: str, rewards: str, trainer: str, placed: Sequence[str]
) -> str:
    """The weir.toml of a cluster with an engine for each name, and members whose engines `weir train` starts."""
    port = free_ports_in_row(len(names))
    tables = "".join(
        f'[[cluster.members]]\nname = "{name}"\nurl = "http://127.0.0.1:{port + number}"\nkind = "cpu"\n'
        f"tags = {json.dumps(['rollout', 'train'] if number else ['rollout'])}\n\n"
        for number, name in enumerate(names)
    )
    tables += "".join(f'[[cluster.members]]\nname = "{name}"\n\n' for name in placed)
    return f"""
[store]
root = "{folder / "store"}"
[model]
path = "{model}"
name = "weir"
[engine]
count = {len(names)}
port = {port}
max_running = 16
{engine}
[router]
port = {find_free_port()}
prometheus_port = {find_free_port()}
[proxy]
port = {find_free_port()}
[agents]
samples = 2
concurrency = 8
max_tokens = 24
[trainer]
groups_per_round = 2
max_staleness = 1
tensorboard = false
device = "cpu"
lr = 1e-4
keep_without_spread = true
rewards = {rewards}
{trainer}
[cluster]
train_members = {max(len(names) - 1, 1)}
probe_s = 0.3
retry_s = 0.5
lease_s = 3.0
{tables}"""


@contextlib.contextmanager
def running_cluster(
    folder: Path,
    model: Path,
    *,
    names: Sequence[str] = MEMBERS,
    engine: str = "",
    rewards: str = "{ score = { stored = true } }",
    trainer: str = "",
    placed: Sequence[str] = (),
) -> Iterator[Cluster]:
    """Start engines, router and proxy; what `train` starts is killed at the end.

    `engine` and `trainer` are further lines of their sections.
    """
    (folder / "weir.toml").write_text(config_of(folder, model, names, engine, rewards, trainer, placed))
    (folder / "agent_of_the_test.py").write_text(AGENT)
    tasks = [{"task_id": f"t{number}", "prompt": f"task {number}", "files": {}} for number in range(8)]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    settings = load_settings(folder / "weir.toml")
    Catalog.open(settings.store).close()
    parts = ("engine", "sglang-router", "proxy")
    servers = [server for server in fleet(settings, folder / "weir.toml") if server.name.startswith(parts)]
    with running(servers, ready_timeout_s=600) as processes:
        cluster = Cluster(folder=folder, settings=settings, servers=servers, processes=processes)
        try:
            yield cluster
        finally:
            for process in cluster.trains:
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
