"""`weir stage` beside a real engine: every version arrives, whatever is killed, and only what is verified is loaded."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from support_s3 import S3Server
from support_servers import EngineFactory, ServerProcess, find_free_port, start_engine
from support_staged import start_stage, wait_until, write_next

from weir.store.config import StoreConfig
from weir.trainer.errors import TrainerUsageError, VersionError
from weir.trainer.http_json import Refused
from weir.trainer.publishing.stage import Stage
from weir.trainer.versions.version_folder import MANIFEST, list_versions, version_path

# A stage that kills itself at a point: an event of the interpreter on a path, or a request to the engine.
_DYING = """
import asyncio, os, pathlib, signal, sys
from weir.store.config import StoreConfig
from weir.trainer.publishing import stage
kind, name, folder, engine, root, endpoint, local = sys.argv[1:]
def die():
    os.kill(os.getpid(), signal.SIGKILL)
def hook(event, arguments):
    if event == kind and arguments and name in str(arguments[0]) and folder in str(arguments[0]):
        die()
sys.addaudithook(hook)
ask = stage.post
async def post(http, url, *arguments, **more):
    if kind == "before" and url.endswith(name):
        die()
    answer = await ask(http, url, *arguments, **more)
    if kind == "after" and url.endswith(name):
        die()
    return answer
stage.post = post
store = StoreConfig(root=root, s3_endpoint=endpoint, local_folder=pathlib.Path(local))
staging = stage.Stage(store, pathlib.Path(folder), engine, load_timeout_s=120, say=print)
asyncio.run(staging.run(0.1))
"""
POINTS = [
    ("open", ".delta"),
    ("open", "model.safetensors"),
    ("os.rename", "00000003."),
    ("open", "engine.paused"),
    ("before", "/update_weights_from_disk"),
    ("after", "/update_weights_from_disk"),
    ("after", "/continue_generation"),
    ("os.rename", "versions/00000008"),
]


def reports(engine: ServerProcess, version: int) -> Callable[[], bool]:
    def reported() -> bool:
        try:
            return bool(engine.client.get("/model_info").json()["weight_version"] == str(version))
        except httpx.TransportError:
            return False

    return reported


def stage_once(store: StoreConfig, folder: Path, engine: str) -> list[str]:
    """One look at the store, in this process; what was said."""
    said: list[str] = []

    async def once(staging: Stage) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
            await staging.bring_up_to_date(http)

    staging = Stage(store, folder, engine, load_timeout_s=120, say=said.append)
    try:
        asyncio.run(once(staging))
    finally:
        staging.close()
    return said


def generates(engine: ServerProcess) -> bool:
    answer = engine.post("/generate", {"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 2}})
    return len(answer["output_ids"]) == 2


def test_an_engine_follows_the_store_through_restarts_of_both(
    tiny_model_dir: Path, store: StoreConfig, engine_server: EngineFactory, tmp_path: Path
) -> None:
    engine, folder, log = engine_server(), tmp_path / "staged", tmp_path / "stage.log"
    write_next(store, tiny_model_dir, 1)
    staging = start_stage(folder, engine.url, store.folder, log)
    try:
        wait_until(reports(engine, 1), "on version 1", log)
        newest = write_next(store, tiny_model_dir, 2)
        wait_until(reports(engine, 2), "on version 2", log)
        staging.kill()
        staging.wait()
        engine.kill()
        for number in (3, 4, 5):  # while the engine is away
            newest = write_next(store, tiny_model_dir, number)
            with pytest.raises(Refused):
                stage_once(store, folder, engine.url)
            assert [v.manifest.version for v in list_versions(folder)] == [number - 1, number]
        own = f"http://127.0.0.1:{find_free_port()}"
        staging = start_stage(folder, engine.url, store.folder, log, "--serve", own, "--peer", own)
        engine = start_engine(tiny_model_dir, folder=tmp_path, port=engine.port)
        wait_until(reports(engine, 5), "on version 5", log)
        wait_until(lambda: [v.manifest.version for v in list_versions(folder)] == [5], "alone in the folder", log)
        staged = version_path(folder, 5)
        assert (staged / "model.safetensors").read_bytes() == (newest.path / "model.safetensors").read_bytes()
        assert not [name for name in ("trainer_state.pt", "critic.pt", "metrics.json") if (staged / name).exists()]
        assert generates(engine)
        digest = hashlib.sha256((staged / MANIFEST).read_bytes()).hexdigest()
        passed_on = httpx.get(f"{own}/versions/5/{digest}/model.safetensors", trust_env=False).content
        assert passed_on == (staged / "model.safetensors").read_bytes()
        with pytest.raises(TrainerUsageError, match="another `weir stage` uses"):
            Stage(store, folder, engine.url, load_timeout_s=1, say=print)
        with pytest.raises(TrainerUsageError, match="this one among them"):
            Stage(store, tmp_path / "other", engine.url, load_timeout_s=1, say=print, serve=own)
        for wrong, why in ((f"{own}x", "is http://HOST:PORT"), (f"{own}/versions", "is not"), (f"{own}/", "twice")):
            peers = [own, wrong]
            with pytest.raises(TrainerUsageError, match=why):
                Stage(store, tmp_path / "other", engine.url, load_timeout_s=1, say=print, serve=own, peers=peers)
    finally:
        staging.kill()
        staging.wait()
        engine.stop()


def test_a_stage_that_is_killed_at_any_point_is_continued_by_the_next(
    tiny_model_dir: Path, s3: S3Server, engine_server: EngineFactory, tmp_path: Path
) -> None:
    store = StoreConfig(root=s3.new_root(), s3_endpoint=s3.url, local_folder=tmp_path / "trainer")
    engine, folder = engine_server(), tmp_path / "staged"
    write_next(store, tiny_model_dir, 1)
    stage_once(store, folder, engine.url)
    for number, (kind, name) in enumerate(POINTS, start=2):
        newest = write_next(store, tiny_model_dir, number)
        arguments = [kind, name.replace("00000003", f"{number:08d}"), str(folder), engine.url]
        child = subprocess.run(
            [sys.executable, "-c", _DYING, *arguments, str(store.root), s3.url, str(tmp_path / "other")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert child.returncode == -signal.SIGKILL, (kind, name, child.stdout, child.stderr)
        stage_once(store, folder, engine.url)
        assert reports(engine, number)(), (kind, name)
        assert generates(engine), (kind, name)
        assert [version.manifest.version for version in list_versions(folder)] == [number]
        staged = version_path(folder, number) / "model.safetensors"
        assert staged.read_bytes() == (newest.path / "model.safetensors").read_bytes()


def test_a_damaged_delta_never_reaches_the_engine_and_the_whole_file_does_where_there_is_one(
    tiny_model_dir: Path,
    store: StoreConfig,
    engine_server: EngineFactory,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine, folder = engine_server(), tmp_path / "staged"
    write_next(store, tiny_model_dir, 1)
    assert len(stage_once(store, folder, engine.url)) == 2
    assert stage_once(store, folder, engine.url) == []
    delta = write_next(store, tiny_model_dir, 2).path / "model.safetensors.delta"
    content = delta.read_bytes()
    delta.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    whole = delta.with_name("model.safetensors").rename(tmp_path / "whole")
    with pytest.raises(VersionError, match=r"model\.safetensors\.delta is not what the manifest says"):
        stage_once(store, folder, engine.url)
    assert reports(engine, 1)()
    assert [version.manifest.version for version in list_versions(folder)] == [1]
    content = whole.rename(delta.with_name("model.safetensors")).read_bytes()
    assert len(stage_once(store, folder, engine.url)) == 2
    assert "model.safetensors.delta is not what the manifest says" in caplog.text
    assert "the whole files of version 2 are fetched instead" in caplog.text
    assert reports(engine, 2)()
    assert (version_path(folder, 2) / "model.safetensors").read_bytes() == content


def test_a_folder_without_room_is_named(tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = StoreConfig(root=tmp_path / "store")
    write_next(store, tiny_model_dir, 1)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("weir.trainer.publishing.stage.fetch", full)
    with pytest.raises(VersionError, match=r"no room for version 1 in .*, where .* MB are free: .* two whole versions"):
        stage_once(store, tmp_path / "staged", "http://127.0.0.1:1")
