"""Engines that die or come back with old weights leave the router's rotation, and return once they are current."""

import asyncio
import concurrent.futures
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from support_proxy import RunningProxy, running_proxy
from support_router import Router, running_router
from support_servers import EngineFactory, ServerProcess, find_free_port, start_engine

from weir.proxy.engines.gate import Gate
from weir.proxy.engines.router import RouterClient
from weir.proxy.engines.watch import EngineWatch, is_older
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.cluster.members import CLUSTER, MemberRow, take_over
from weir.store.catalog.devices.switches import AsleepEngine, asleep_engines, let_go, process_of, put_to_sleep
from weir.store.catalog.leases import give_lease_back, take_lease
from weir.store.config import StoreConfig

USER: Any = [{"role": "user", "content": "Hi"}]


class Fleet:
    """Two embedded engines behind a router behind a proxy."""

    def __init__(self, engines: list[ServerProcess], router: Router, proxy: RunningProxy) -> None:
        self.engines = engines
        self.router = router
        self.proxy = proxy

    def inside(self) -> set[str]:
        workers = httpx.get(self.router.url + "/workers", trust_env=False, timeout=120).json()["workers"]
        return {worker["url"] for worker in workers}

    def ask(self) -> str:
        """One call; the version that served it."""
        with self.proxy.client() as client:
            answer = client.chat.completions.with_raw_response.create(model="weir", messages=USER, max_tokens=4)
        return str(answer.headers["x-weir-version"])

    def out(self) -> dict[str, str]:
        found: dict[str, str] = self.proxy.control("GET", "/weir/state").json()["engines_out"]
        return found

    def publish(self, folder: Path, version: int) -> None:
        """Publish a version as the publisher does, with its row in the catalog."""
        self.proxy.control("POST", "/weir/pause")
        for engine in self.engines:
            body = {"model_path": str(folder), "weight_version": str(version), "flush_cache": True}
            assert engine.post("/update_weights_from_disk", body)["success"] is True
        self.proxy.control("POST", "/weir/resume", {"weight_version": version})
        catalog = self.proxy.proxy.catalog
        catalog.add_version(version, path=str(folder), parent=None, round_id=None, manifest_sha256="0" * 64)
        catalog.set_published(version, time.time_ns() // 1000, [engine.url for engine in self.engines])

    def restart(self, engine: ServerProcess, model: Path, folder: Path) -> ServerProcess:
        """Restart the engine on its port, with its first weights."""
        again = start_engine(model, folder=folder, port=engine.port)
        self.engines[self.engines.index(engine)] = again
        return again


@pytest.fixture
def fleet(engine_server: EngineFactory, tiny_model_dir: Path, tmp_path: Path) -> Iterator[Fleet]:
    with ExitStack() as opened:
        engines = [engine_server(tiny_model_dir) for _ in range(2)]
        router = opened.enter_context(running_router([engine.url for engine in engines], tmp_path))
        proxy = opened.enter_context(
            running_proxy(tmp_path / "store", tiny_model_dir, router.url, engine_check_s=0.2, retry_backoff_s=0.1)
        )
        running = Fleet(engines, router, proxy)
        yield running
        for engine in running.engines:
            engine.stop()


def wait_for(condition: Any) -> None:
    while not condition():
        time.sleep(0.02)


def test_a_dead_engine_leaves_the_rotation_under_load_and_no_call_fails(fleet: Fleet) -> None:
    dead, alive = fleet.engines
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        first = [pool.submit(fleet.ask) for _ in range(16)]
        dead.kill()
        later = [pool.submit(fleet.ask) for _ in range(16)]
        assert [answer.result() for answer in first + later] == ["0"] * 32
    wait_for(lambda: fleet.inside() == {alive.url})
    assert fleet.out() == {dead.url: "it does not answer"}
    assert "weir_engines_out 1.0" in httpx.get(fleet.proxy.url + "/metrics", trust_env=False, timeout=120).text


def test_an_engine_restarted_on_old_weights_loads_the_current_ones_before_it_serves(
    fleet: Fleet, tiny_model_dir: Path, tmp_path: Path
) -> None:
    dead, alive = fleet.engines
    fleet.publish(tiny_model_dir, 3)
    dead.kill()
    wait_for(lambda: fleet.inside() == {alive.url})
    again = fleet.restart(dead, tiny_model_dir, tmp_path)
    wait_for(lambda: fleet.inside() == {again.url, alive.url} and fleet.out() == {})
    assert again.get("/model_info")["weight_version"] == "3"
    assert {fleet.ask() for _ in range(8)} == {"3"}


def test_an_engine_that_a_publish_left_out_loads_the_current_weights_and_returns_by_itself(
    fleet: Fleet, tiny_model_dir: Path
) -> None:
    left, good = fleet.engines
    fleet.proxy.control("POST", "/weir/pause")
    left.post("/pause_generation", {"mode": "abort"})  # it also says that it serves the version, with other weights
    left.post("/update_weight_version", {"new_version": "3"})
    good.post("/update_weights_from_disk", {"model_path": str(tiny_model_dir), "weight_version": "3"})
    workers = httpx.get(fleet.router.url + "/workers", trust_env=False, timeout=120).json()["workers"]
    (worker,) = [worker["id"] for worker in workers if worker["url"] == left.url]
    httpx.delete(f"{fleet.router.url}/workers/{worker}", trust_env=False, timeout=120)
    wait_for(lambda: fleet.inside() == {good.url})
    fleet.proxy.control("POST", "/weir/resume", {"weight_version": 3, "left_out": {left.url: "it hung"}})
    assert fleet.out() == {left.url: "left out by a publish: it hung"}
    catalog = fleet.proxy.proxy.catalog
    catalog.add_version(3, path=str(tiny_model_dir), parent=None, round_id=None, manifest_sha256="0" * 64)
    catalog.set_published(3, time.time_ns() // 1000, [good.url])
    wait_for(lambda: fleet.inside() == {left.url, good.url} and fleet.out() == {})
    assert left.get("/server_info")["internal_states"][0]["paused"] is None
    assert left.get("/model_info")["weight_version"] == "3"
    assert {fleet.ask() for _ in range(8)} == {"3"}


def test_an_engine_that_cannot_load_the_current_weights_stays_out_and_is_named(
    fleet: Fleet, tiny_model_dir: Path, tmp_path: Path
) -> None:
    dead, alive = fleet.engines
    fleet.publish(tiny_model_dir, 3)
    fleet.proxy.proxy.catalog.add_version(
        4, path=str(tmp_path / "nowhere"), parent=None, round_id=None, manifest_sha256="1" * 64
    )
    alive.post("/update_weight_version", {"new_version": "4", "abort_all_requests": False})
    fleet.proxy.proxy.catalog.set_published(4, time.time_ns() // 1000, [alive.url])
    fleet.proxy.control("POST", "/weir/resume", {"weight_version": 4})
    wait_for(lambda: "did not load version 4" in fleet.out().get(dead.url, ""))
    assert fleet.inside() == {alive.url}
    assert {fleet.ask() for _ in range(4)} == {"4"}


def test_versions_are_compared_as_numbers_and_names_are_older() -> None:
    assert is_older("9", "10") and is_older("default", "1")
    assert not is_older("10", "9") and not is_older("3", "3") and not is_older(None, "3") and not is_older("1", "x")


def test_one_of_two_proxies_before_a_router_watches(tiny_model_dir: Path, tmp_path: Path) -> None:
    dead = f"http://127.0.0.1:{find_free_port()}"
    with (
        running_proxy(tmp_path / "store", tiny_model_dir, dead) as one,
        running_proxy(tmp_path / "store", tiny_model_dir, dead) as other,
    ):
        wait_for(lambda: one.proxy.engines.watches or other.proxy.engines.watches)
        assert not (one.proxy.engines.watches and other.proxy.engines.watches)


def test_an_engine_that_comes_later_with_a_version_that_is_no_integer_is_named_once(
    fleet: Fleet, tiny_model_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    named = start_engine(tiny_model_dir, folder=tmp_path, arguments=("--weight-version", "default"))
    fleet.engines.append(named)
    httpx.post(fleet.router.url + "/workers", json={"url": named.url}, trust_env=False, timeout=120)
    wait_for(lambda: "'default', which is not an integer" in caplog.text)
    fleet.engines[0].kill()
    wait_for(lambda: fleet.engines[0].url in fleet.out())  # a later check
    assert caplog.text.count("which is not an integer") == 1


def test_what_becomes_of_an_engine_that_a_controller_has_is_left_to_it(
    fleet: Fleet, tiny_model_dir: Path, tmp_path: Path
) -> None:
    """`weir train` takes engines out for training, and brings them back itself; a dead one gets no calls though."""
    catalog = fleet.proxy.proxy.catalog
    lease = take_lease(catalog, CLUSTER, "controller", 600)
    ours, other = fleet.engines
    row = MemberRow(
        name="a", url=ours.url, tags=["rollout"], kind="", memory_gb=None, train_priority=0, phase="rollout"
    )
    take_over(catalog, [row], lease)
    fleet.ask()
    ours.kill()
    wait_for(lambda: fleet.inside() == {other.url})
    fleet.restart(ours, tiny_model_dir, tmp_path)
    fleet.publish(tiny_model_dir, 3)
    other.kill()  # the watch brings back the engine that nobody has
    wait_for(lambda: other.url in fleet.out())
    fleet.restart(other, tiny_model_dir, tmp_path)
    wait_for(lambda: fleet.inside() == {other.url} and fleet.out() == {})
    assert {fleet.ask() for _ in range(4)} == {"3"}
    assert fleet.inside() == {other.url}  # the checks since have not put in what is the controller's
    give_lease_back(catalog, lease)


def test_an_engine_that_sleeps_for_training_is_left_alone_and_brought_back_once_the_trainer_is_gone(
    fleet: Fleet, tiny_model_dir: Path
) -> None:
    sleeping, other = fleet.engines
    catalog = fleet.proxy.proxy.catalog
    info = sleeping.get("/server_info")
    row = AsleepEngine(
        url=sleeping.url,
        member="gpu",
        process=process_of(info),
        model_path=str(tiny_model_dir),
        weight_version="0",
        held_until_us=time.time_ns() // 1000 + 3_600_000_000,
    )
    put_to_sleep(catalog, row)
    sleeping.post("/pause_generation", {"mode": "abort"})
    sleeping.post("/release_memory_occupation")
    other.kill()
    wait_for(lambda: fleet.out() == {other.url: "it does not answer"})  # a whole check has passed over both
    assert sleeping.get("/server_info")["internal_states"][0]["released_memory"] == ["kv_cache", "weights"]
    let_go(catalog, "gpu")
    wait_for(lambda: fleet.inside() == {sleeping.url} and not asleep_engines(catalog))
    assert fleet.ask() == "0"


def test_a_watch_that_never_began_leaves_no_connections_open(tmp_path: Path) -> None:
    catalog = Catalog.open(StoreConfig(root=tmp_path))

    async def run() -> None:
        rotation = RouterClient("http://127.0.0.1:9")
        watch = EngineWatch(rotation, Gate(1.0), catalog, announced=lambda: None, folder=tmp_path, period_s=1.0)
        await watch.close()
        with pytest.raises(RuntimeError, match="closed"):
            await rotation.engines()

    asyncio.run(run())
    catalog.close()
