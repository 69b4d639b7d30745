"""Gates whose closer was killed: they open once an engine is fit to serve, never on weights that are half loaded."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from support_loading_engine import loading_engine
from support_proxy import CONTROL_KEY, RunningProxy, running_proxy
from support_router import running_router
from support_scripted_proxy import KEY, scripted_proxy
from support_scripted_proxy import Proxy as ScriptedProxy

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.cluster.members import CLUSTER, MemberRow, take_over
from weir.store.catalog.devices.switches import asleep_engines
from weir.store.catalog.leases import take_lease
from weir.store.config import StoreConfig
from weir.trainer.publishing import gates
from weir.trainer.publishing.publish import publish
from weir.trainer.settings.config import TrainerConfig

LEASE_S = 2.0
CLOSER = f"""
import asyncio, sys, httpx
from pathlib import Path
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.trainer.publishing import gates

gates.LEASE_S, gates.RENEW_S = {LEASE_S}, 0.1

async def close():
    catalog = Catalog.open(StoreConfig(root=Path(sys.argv[1])))
    async with httpx.AsyncClient(trust_env=False) as http:
        await gates.Gates(http, [], catalog, {CONTROL_KEY!r}).close()
        print("closed", flush=True)
        await asyncio.sleep(3600)

asyncio.run(close())
"""

TRAINER = f"""
import sys, time
from pathlib import Path
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.devices import switches
from weir.store.config import StoreConfig
from weir.trainer.publishing import engine_memory, gates, switch
from weir.trainer.settings.config import TrainerConfig

gates.LEASE_S = 0.5
gates.RENEW_S = switch.RENEW_S = 0.1
switches.HELD_S = engine_memory.HELD_S = 1.0

class State:
    def wake(self):
        print("trains", flush=True)
        time.sleep(3600)

store = StoreConfig(root=Path(sys.argv[1]))
config = TrainerConfig(engine_urls=[sys.argv[2]], control_key={CONTROL_KEY!r})
member = switch.Member(name="gpu", config=config, store=store, catalog=Catalog.open(store), state=State())
switch.switch(member, to="train")
"""


def wait_for(condition: Callable[[], bool], limit_s: float = 60) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.02)


def is_open(proxy: RunningProxy) -> bool:
    return proxy.control("GET", "/weir/state").json()["gate"] == "open"


def test_gates_of_a_killed_controller_open_once_engines_have_weights_that_are_whole(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    """One engine was being loaded in rotation, the other one trained: both return with the newest version."""
    with (
        loading_engine() as loaded,
        loading_engine() as trained,
        running_router([loaded.url, trained.url], tmp_path) as router,
        running_proxy(tmp_path / "store", tiny_model_dir, router.url, engine_check_s=0.05) as proxy,
    ):
        catalog = proxy.proxy.catalog
        wait_for(lambda: trained.told.count("model_info") > 0)  # the proxies know it

        def inside() -> set[str]:
            workers = httpx.get(f"{router.url}/workers", trust_env=False, timeout=60).json()["workers"]
            return {worker["url"] for worker in workers}

        row = {"tags": ["train"], "kind": "", "memory_gb": None, "train_priority": 0.0, "phase": "train"}
        take_over(
            catalog,
            [MemberRow(name="a", url=loaded.url, **row), MemberRow(name="b", url=trained.url, **row)],
            take_lease(catalog, CLUSTER, "controller", 600),
        )
        workers = httpx.get(f"{router.url}/workers", trust_env=False, timeout=60).json()["workers"]
        (worker,) = [worker["id"] for worker in workers if worker["url"] == trained.url]
        httpx.delete(f"{router.url}/workers/{worker}", trust_env=False, timeout=60)
        wait_for(lambda: inside() == {loaded.url})
        closer = subprocess.Popen([sys.executable, "-c", CLOSER, str(tmp_path / "store")], stdout=subprocess.PIPE)
        assert closer.stdout is not None and closer.stdout.readline() == b"closed\n"
        loaded.paused = trained.paused = True
        (tmp_path / "model.safetensors").touch()
        catalog.add_version(1, path=str(tmp_path), parent=None, round_id=None, manifest_sha256="0" * 64)
        assert not is_open(proxy) and loaded.version == "0"
        loaded.slow_s = {"/update_weights_from_disk": 0.2}
        closer.kill()
        closer.wait()
        take_lease(catalog, CLUSTER, "controller", 1e-6)  # it ends by itself
        wait_for(lambda: is_open(proxy))
        assert inside() and all(engine.version == "1" for engine in (loaded, trained) if engine.url in inside())
        wait_for(lambda: inside() == {loaded.url, trained.url} and proxy.proxy.engines.out() == {})
        for engine in (loaded, trained):
            assert (engine.version, engine.paused) == ("1", False)
        assert proxy.control("GET", "/weir/state").json()["opened_by_limit"] is True


def test_gates_of_a_killed_trainer_that_had_the_engines_devices_open_once_an_engine_is_back(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "model.safetensors").touch()
    with (
        loading_engine() as engine,
        running_router([engine.url], tmp_path) as router,
        running_proxy(tmp_path / "store", tiny_model_dir, router.url, engine_check_s=0.05) as proxy,
    ):
        engine.version = "1"
        proxy.proxy.catalog.add_version(1, path=str(tmp_path), parent=None, round_id=None, manifest_sha256="0" * 64)
        proxy.proxy.catalog.set_published(1, 1, [engine.url])
        trainer = subprocess.Popen(
            [sys.executable, "-c", TRAINER, str(tmp_path / "store"), engine.url], stdout=subprocess.PIPE
        )
        assert trainer.stdout is not None and trainer.stdout.readline() == b"trains\n"
        assert proxy.proxy.gate.times_closed and "release_memory_occupation" in engine.told
        trainer.kill()
        trainer.wait()
        wait_for(lambda: is_open(proxy))
        assert engine.told.count("resume_memory_occupation") == 2
        assert (engine.version, engine.paused, asleep_engines(proxy.proxy.catalog)) == ("1", False, {})
        assert proxy.control("GET", "/weir/state").json()["opened_by_limit"] is True


def test_a_gate_without_engines_that_are_fit_stays_closed_and_opens_for_its_closer_alone(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    with (
        loading_engine() as engine,
        running_router([engine.url], tmp_path) as router,
        running_proxy(tmp_path / "store", tiny_model_dir, router.url, engine_check_s=0.05) as proxy,
    ):
        proxy.control("POST", "/weir/pause", {"lease_s": 0.1})
        wait_for(lambda: is_open(proxy))  # nothing was ever published, so that nothing can be half loaded
        engine.fault = "breaks"
        (tmp_path / "model.safetensors").touch()
        proxy.proxy.catalog.add_version(1, path=str(tmp_path), parent=None, round_id=None, manifest_sha256="0" * 64)
        proxy.control("POST", "/weir/pause", {"lease_s": 0.1, "serve_passes": True})
        wait_for(lambda: is_open(proxy))  # what was loading was out of rotation
        assert engine.version == "0"
        proxy.control("POST", "/weir/pause", {"lease_s": 0.1})
        wait_for(lambda: "update_weights_from_disk" in engine.told)
        state = proxy.control("GET", "/weir/state").json()
        assert (state["gate"], state["gate_abandoned"]) == ("closed", True)
        assert list(state["engines_out"]) == [engine.url]
        proxy.control("POST", "/weir/pause", {"lease_s": 600.0, "renews": True})
        assert proxy.control("GET", "/weir/state").json()["gate_abandoned"] is False
        proxy.control("POST", "/weir/resume")
        assert proxy.control("POST", "/weir/pause", {"lease_s": 600.0, "renews": True}).json()["gate"] == "open"


def test_closed_gates_are_renewed_until_they_are_opened(store: StoreConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "RENEW_S", 0.01)
    catalog = Catalog.open(store)

    async def close_and_open(proxy: ScriptedProxy) -> None:
        async with httpx.AsyncClient(trust_env=False) as http:
            closed = gates.Gates(http, [proxy.url], catalog, KEY)
            await closed.close()
            while proxy.times_renewed < 2:  # noqa: ASYNC110 (another thread counts)
                await asyncio.sleep(0.01)
            await closed.open(None, {})
            proxy.times_renewed = 0
            kept = gates.Gates(http, [silent, proxy.url], catalog, KEY)
            await kept.keep()
            while proxy.times_renewed < 2:  # noqa: ASYNC110 (another thread counts)
                await asyncio.sleep(0.01)
        assert proxy.told == [
            ("/weir/pause", {"mode": "continue", "lease_s": gates.LEASE_S}),
            ("/weir/resume", {}),
        ]
        assert proxy.gate == "open", "a gate that was only kept is not closed"

    with scripted_proxy() as proxy, socket.create_server(("127.0.0.1", 0)) as listener:
        silent = f"http://127.0.0.1:{listener.getsockname()[1]}"  # it hangs, which delays no other proxy's renewal
        asyncio.run(close_and_open(proxy))
    catalog.close()


def test_a_publish_by_disk_imports_nothing_that_needs_torch_while_gates_are_closed(
    store: StoreConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("senders", "weight_source", "delta_sender", "adapter_sender"):
        monkeypatch.setitem(sys.modules, f"weir.trainer.publishing.{module}", None)  # an import fails
    (tmp_path / "model.safetensors").touch()
    catalog = Catalog.open(store)
    with loading_engine() as engine, scripted_proxy() as proxy:
        config = TrainerConfig(engine_urls=[engine.url], proxy_urls=[proxy.url], control_key=KEY)
        assert publish(tmp_path, 1, config, KEY, catalog).serving == [engine.url]
        assert (proxy.times_closed, proxy.gate) == (1, "open")
    catalog.close()
