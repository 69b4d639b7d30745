"""kill -9 of a proxy worker, an engine and the router, idle and in the middle of an update, under the real openai SDK.

Killed processes are restarted as `weir up` does it (a worker: by its own parent), engines with their first weights.
Invariants: no answer that a client has is missing in the store; clients see no error that their SDK does not
retry (a stream that is cut with its proxy worker is one); everything serves the current version again by itself.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from support_model import make_tokenizer
from support_router import Router, running_router
from support_servers import ServerProcess, find_free_port, start_server
from support_workers import KEY, Workers, running_workers

from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.trainer.publishing.publish import PublishReport, publish
from weir.trainer.settings.config import TrainerConfig

NUM_AGENTS = 6
LOAD_S = "1.0"


class Load:
    """Agents that call without pause, each with its own SDK client and the SDK's own retries."""

    def __init__(self, url: str) -> None:
        self.answered: list[str] = []
        self.errors: list[tuple[bool, Exception]] = []  # streamed?, what the SDK raised
        self._url = url
        self._enough = threading.Event()
        self._threads = [threading.Thread(target=self._agent, args=(n,)) for n in range(NUM_AGENTS)]
        for thread in self._threads:
            thread.start()

    def wait_answered(self, more: int) -> None:
        """Return when so many more calls were answered."""
        wanted = len(self.answered) + more
        while len(self.answered) < wanted:
            time.sleep(0.02)

    def stop(self) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join()

    def _agent(self, number: int) -> None:
        turn = 0
        with openai.OpenAI(base_url=self._url + "/v1", api_key="agent") as client:
            while not self._enough.is_set():
                turn += 1
                try:
                    self._call(client, f"{number}: {turn}", stream=turn % 2 == 0)
                except (openai.APIError, httpx.HTTPError) as error:
                    self.errors.append((turn % 2 == 0, error))

    def _call(self, client: openai.OpenAI, text: str, *, stream: bool) -> None:
        messages: Any = [{"role": "user", "content": text}]
        raw = client.chat.completions.with_raw_response.create(model="weir", messages=messages, stream=stream)
        if stream:
            chunks = list(raw.parse())
            assert chunks[-1].choices[0].finish_reason
        self.answered.append(raw.headers["x-weir-call"])


class Fleet:
    """Two scripted engines, the real router and a proxy of two workers, all as processes."""

    def __init__(self, folder: Path, model: Path, opened: ExitStack) -> None:
        self.version = 0
        self._folder = folder
        self._opened = opened
        tokenizer = make_tokenizer(512)
        self._end = str(tokenizer.convert_tokens_to_ids("<|im_end|>"))
        self.engines = [self._start_engine(find_free_port()) for _ in range(2)]
        self.router = self._start_router(find_free_port())
        self.proxy: Workers = opened.enter_context(
            running_workers(folder, model, self.router.url, 2, engine_check_s=0.3, retry_backoff_s=0.1)
        )
        self.catalog = Catalog.open(StoreConfig(root=self.proxy.store))

    def kill_worker(self) -> None:
        self.proxy.kill_worker(self.proxy.state()["workers"][0]["worker"])

    def kill_engine(self) -> None:
        dead = self.engines[0]
        dead.kill()
        self.engines[0] = self._start_engine(dead.port)

    def kill_router(self) -> None:
        port = self.router.process.port
        self.router.process.kill()
        self.router = self._start_router(port)

    def publish(self) -> PublishReport:
        """Publish the next version, with its row in the catalog."""
        self.version += 1
        urls = [engine.url for engine in self.engines]
        config = TrainerConfig(engine_urls=urls, router_url=None, proxy_urls=[])
        self.catalog.add_version(
            self.version, path=str(self._folder), parent=None, round_id=None, manifest_sha256=f"{self.version:064}"
        )
        report = publish(self._folder, self.version, config, KEY, self.catalog)
        self.catalog.set_published(self.version, time.time_ns() // 1000, report.serving)
        return report

    def has_recovered(self) -> bool:
        """Whether all workers are open, and all engines in rotation with the current version."""
        try:
            state = self.proxy.state()
            listed = httpx.get(self.router.url + "/workers", trust_env=False, timeout=120).json()["workers"]
        except httpx.TransportError:
            return False
        versions = [engine.get("/model_info")["weight_version"] for engine in self.engines]
        return (
            [worker["gate"] for worker in state["workers"]] == ["open"] * 2
            and {worker["url"] for worker in listed} == {engine.url for engine in self.engines}
            and versions == [str(self.version)] * 2
            and not state["engines_out"]
        )

    def _start_engine(self, port: int) -> ServerProcess:
        ledger = self._folder / f"ledger-{port}-{time.time_ns()}.jsonl"
        command = [sys.executable, "-m", "weir.scripts.bench.gate.engine", str(port), str(ledger), LOAD_S]
        engine = start_server(
            [*command, "64", self._end, "256"], port=port, log_path=self._folder / f"engine-{port}.log", limit_s=600
        )
        self._opened.callback(engine.stop)
        return engine

    def _start_router(self, port: int) -> Router:
        urls = [engine.url for engine in self.engines]
        return self._opened.enter_context(running_router(urls, self._folder, port=port))


@pytest.fixture(scope="module")
def fleet(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with ExitStack() as opened:
        running = Fleet(tmp_path_factory.mktemp("faults"), tiny_model_dir, opened)
        running.publish()
        yield running


@pytest.mark.parametrize("in_update", [False, True], ids=["idle", "in_update"])
@pytest.mark.parametrize("victim", ["worker", "engine", "router"])
def test_after_kill_9_no_answer_is_missing_and_everything_serves_again(
    fleet: Fleet, victim: str, in_update: bool
) -> None:
    kill: Callable[[], None] = getattr(fleet, f"kill_{victim}")
    load = Load(fleet.proxy.url)
    try:
        load.wait_answered(2 * NUM_AGENTS)
        if in_update:
            publishing = threading.Thread(target=fleet.publish)
            publishing.start()
            fleet.proxy.wait_until(lambda state: state["gate"] != "open")
            kill()
            publishing.join()
        else:
            kill()
        while not fleet.has_recovered():
            time.sleep(0.05)
        load.wait_answered(2 * NUM_AGENTS)
    finally:
        load.stop()
    cut_with_their_worker = [error for stream, error in load.errors if victim == "worker" and stream]
    assert len(cut_with_their_worker) == len(load.errors) <= NUM_AGENTS, load.errors
    assert set(load.answered) <= {record.call_id for record in fleet.proxy.records()}
