"""Engines that are children of `weir train`: what becomes of one that cannot run is said, and ends nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file
from support_router import running_router

from weir.cluster.config import ClusterMember
from weir.cluster.state import Settings, State
from weir.proxy.engines.router import RouterFailed
from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.settings import load_settings
from weir.scripts.live import lookout
from weir.scripts.live.engines import Engines
from weir.scripts.live.lookout import Lookout
from weir.scripts.live.placed_engines import PlacedEngines
from weir.scripts.live.processes.local import LocalProcesses
from weir.scripts.live.processes.member_engine import MemberEngine
from weir.scripts.live.processes.start_weights import forget
from weir.store.catalog.catalog import Catalog
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.versions.stored import prune
from weir.trainer.versions.version_folder import read_manifest, set_current, version_path, write_version

MEMBER = ClusterMember(name="both")


class Heard:
    """Where engines are said to be."""

    def __init__(self) -> None:
        self.moves: list[tuple[str, str]] = []

    async def moved(self, member: str, url: str) -> None:
        self.moves.append((member, url))


OF_NO_ROUND: dict[str, Any] = {"round_id": None, "config_hash": "", "seed": 0, "groups": []}


def write_weights(folder: Path, version: int) -> None:
    save_file({"weight": torch.tensor([version])}, folder / "model.safetensors")
    (folder / "trainer_state.pt").touch()


def model_of(engine: MemberEngine) -> Path:
    argv = engine.server("127.0.0.1", [])[0].argv
    return Path(argv[argv.index("--model") + 1])


def processes(folder: Path, members: dict[str, ClusterMember]) -> LocalProcesses:
    """Of a run whose model is an empty folder."""
    (folder / "model").mkdir()
    text = f"[store]\nroot = '{folder / 'store'}'\n[model]\npath = '{folder / 'model'}'\n[cluster]\nretry_s = 0.05\n"
    (folder / "weir.toml").write_text(text)
    return LocalProcesses(load_settings(folder / "weir.toml"), folder / "weir.toml", members)


def test_an_engine_that_ends_and_a_member_without_room_are_said_once_and_others_go_on(tmp_path: Path) -> None:
    members = {"both": MEMBER}
    local, heard, said = processes(tmp_path, members), Heard(), list[str]()

    async def watch() -> None:
        spoken = asyncio.Event()

        def say(text: str) -> None:
            said.append(text)
            spoken.set()

        placed = PlacedEngines(local, members, say)
        members["large"] = MEMBER.model_copy(update={"name": "large", "gpus": 1000})  # joins a run
        watching = asyncio.create_task(placed.watch(heard))
        while len(said) < 2 or len({url for _, url in heard.moves}) < 2:  # it is started again
            assert not watching.done(), watching.result()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(spoken.wait(), 0.05)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await placed.close()

    asyncio.run(asyncio.wait_for(watch(), 240))
    assert len(said) == 2
    large, both = sorted(said, reverse=True)
    assert large.startswith("member large has no engine: it is to have 1000 GPUs, and ")
    assert both.startswith("member both has no engine: it ended with status ")
    assert "saying: weir: " in both
    assert f"its log is {tmp_path / 'store' / 'logs' / 'engine-both.log'}, and it is started again" in both
    assert {member for member, _ in heard.moves} == {"both"}


def test_too_few_gpus_are_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="members without a url are to have 1000 GPUs"):
        processes(tmp_path, {"both": MEMBER.model_copy(update={"gpus": 1000})})


def test_an_engine_that_starts_keeps_its_weights_when_their_version_is_deleted(tmp_path: Path) -> None:
    settings = processes(tmp_path, {})._settings
    engine = MemberEngine(settings=settings, config_path=None, member=MEMBER)
    assert model_of(engine) == tmp_path / "model", "the settings' own is not deleted"
    for version in (1, 2, 3):
        path = version_path(settings.store.folder, version)
        write_version(path, lambda aside: write_weights(aside, version), version=version, parent=None, **OF_NO_ROUND)  # noqa: B023
        set_current(settings.store.folder, version)
        if version == 1:
            model = model_of(engine)
    prune(settings.store.folder, 2)
    assert not version_path(settings.store.folder, 1).exists()
    assert load_file(model / "model.safetensors")["weight"].item() == read_manifest(model).version == 1
    assert not (model / "trainer_state.pt").exists()
    assert model_of(engine) == model and read_manifest(model).version == 3, "it starts anew"
    forget(settings.store, MEMBER.name)
    assert not model.exists() and version_path(settings.store.folder, 3).exists()


def test_an_engine_that_is_frozen_is_killed_and_started_again(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped by SIGSTOP it neither answers nor ends, and its connections stay open."""
    monkeypatch.setattr(lookout, "FROZEN_S", 0.5)
    (tmp_path / "weir.toml").write_text(
        f"[store]\nroot = '{tmp_path / 'store'}'\n[model]\npath = '{tiny_model_dir}'\n[cluster]\nretry_s = 0.05\n"
    )
    settings, members, said = load_settings(tmp_path / "weir.toml"), {"both": MEMBER}, list[str]()
    placed = PlacedEngines(LocalProcesses(settings, tmp_path / "weir.toml", members), members, said.append)
    catalog = Catalog.open(settings.store)

    async def watch(router: str) -> Any:
        host: Any = SimpleNamespace(
            book=SimpleNamespace(state=State(settings=Settings(batch=1))), join=joined.append, lose=print
        )
        trainer = TrainerConfig(router_url=router)
        run: Any = SimpleNamespace(settings=settings, config=settings.cluster, trainer=trainer)
        nobody: Any = SimpleNamespace(seen=lambda _: None, moved=lambda *_: None)
        engines = Engines(trainer, settings.store, catalog, Console(file=StringIO()), None)
        looks = Lookout(host, engines, catalog, nobody, members, run, kill=placed.kill)
        watching = asyncio.create_task(placed.watch(looks))
        await until(looks, lambda: bool(joined))
        first = members["both"].url
        call = asyncio.create_task(asked(first))
        await asyncio.sleep(0.5)
        frozen = placed._engines["both"]._process  # type: ignore[attr-defined]
        os.killpg(frozen.pid, signal.SIGSTOP)
        await until(looks, call.done)
        joined.clear()
        await until(looks, lambda: bool(joined))
        assert members["both"].url != first and frozen.poll() == -signal.SIGKILL
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await placed.close()
        await engines.close()
        return call.exception()

    joined: list[Any] = []
    with running_router([], tmp_path) as router:
        lost = asyncio.run(asyncio.wait_for(watch(router.url), 400))
    catalog.close()
    assert isinstance(lost, httpx.TransportError), "whoever waited hears of its end, and asks another engine"
    assert said[0] == "the engine of member both runs and does not answer: it is killed, and started again"


async def asked(url: str | None) -> None:
    """A call that takes longer than the test."""
    body = {"input_ids": [5, 6], "sampling_params": {"max_new_tokens": 3000, "ignore_eos": True}}
    async with httpx.AsyncClient(trust_env=False, timeout=None) as http:
        for _ in range(1000):
            await http.post(f"{url}/generate", json=body)


async def until(looks: Lookout, holds: Callable[[], bool]) -> None:
    while not holds():
        with contextlib.suppress(RouterFailed):
            await looks.look()
        await asyncio.sleep(0.1)
