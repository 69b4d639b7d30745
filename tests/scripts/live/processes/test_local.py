"""Engines that are children of `weir train`: what becomes of one that cannot run is said, and ends nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from weir.cluster.config import ClusterMember
from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.settings import load_settings
from weir.scripts.live.placed_engines import PlacedEngines
from weir.scripts.live.processes.local import LocalProcesses
from weir.scripts.live.processes.member_engine import MemberEngine
from weir.scripts.live.processes.start_weights import forget
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
