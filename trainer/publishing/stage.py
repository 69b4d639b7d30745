"""The helper beside an engine: keeps the newest version in a folder of its own, and the engine on it.

Invariant: the engine is asked to load only a folder that is whole and verified, and the folder stays until the engine
reports a newer version. Everything can be killed at any point: a folder appears by one rename, and a mark says that the
engine may have been left paused. Calls in flight are retracted for the switch and go on afterwards. What the engine
serves is what it reports: one that was started again, or that somebody else changed, gets the newest version.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx

from weir.kernel_eval.client import tls_context
from weir.store.config import StoreConfig
from weir.store.errors import StoreError
from weir.store.log.writer import lock_file
from weir.trainer.errors import TrainerUsageError, VersionError
from weir.trainer.http_json import CONTROL_TIMEOUT_S, LIMITS, Refused, get, post
from weir.trainer.versions.folder_rename import delete_folder, delete_leftovers
from weir.trainer.versions.peer_server import PeerServer
from weir.trainer.versions.peers import Held, PeerVersions, above, checked
from weir.trainer.versions.sources import Source, fetch, source_of
from weir.trainer.versions.stored import lacking
from weir.trainer.versions.version_folder import (
    MANIFEST,
    Version,
    is_model_file,
    list_versions,
    version_path,
    versions_folder,
)

LOCK, MARK = "stage.lock", "engine.paused"


class Stage:
    """The staged versions of one engine. `say` gets a line for what was done, and for each new trouble.

    With `serve`, its own URL, it passes versions on to the other helpers of `peers`, which has the URLs of all in one
    order, and gets them from these (versions/peers.py). Raises `TrainerUsageError` where another process uses the
    folder, or where it cannot serve there.
    """

    def __init__(
        self,
        store: StoreConfig,
        folder: Path,
        engine: str,
        *,
        load_timeout_s: float,
        say: Callable[[str], None],
        serve: str | None = None,
        peers: Sequence[str] = (),
    ) -> None:
        serve, peers = serve.rstrip("/") if serve else None, checked(peers)
        if (serve is None) != (not peers) or (serve is not None and serve not in peers):
            raise TrainerUsageError("--serve names this helper's own URL, and --peer those of all, this one among them")
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lock = lock_file(folder / LOCK)
        except BlockingIOError as error:
            raise TrainerUsageError(
                f"another `weir stage` uses {folder}: give each engine a folder of its own, or stop that process"
            ) from error
        delete_leftovers(versions_folder(folder))
        self._folder = folder.absolute()
        self._say = say
        self._source: Source = source_of(store)
        self._peers: PeerVersions | None = None
        self._server: PeerServer | None = None
        if serve is not None:
            held = Held(self._folder)
            self._source = self._peers = PeerVersions(self._source, held, above(peers, serve), say)
            try:
                self._server = PeerServer(serve, held)
            except TrainerUsageError:
                os.close(self._lock)
                raise
        self._engine = engine.rstrip("/")
        self._load_timeout_s = load_timeout_s
        self._trouble = ""
        self._failures = 0  # in a row

    def close(self) -> None:
        """Serve nothing any more, and let another process have the folder."""
        if self._server is not None:
            self._server.close()
        os.close(self._lock)

    async def run(self, every_s: float) -> None:
        """Stage and load whatever is newest, for ever; trouble is said once and tried again."""
        with ExitStack() as at_end:
            if self._peers is not None:
                at_end.callback(self._peers.end)  # a thread may be waiting for a file
            await self._run(every_s)

    async def _run(self, every_s: float) -> None:
        async with httpx.AsyncClient(
            trust_env=False, timeout=CONTROL_TIMEOUT_S, verify=tls_context(), limits=LIMITS
        ) as http:
            while True:
                try:
                    await self.bring_up_to_date(http)
                    self._trouble, self._failures = "", 0
                except (Refused, VersionError, StoreError, OSError) as error:
                    self._failures += 1
                    if str(error) != self._trouble:
                        self._trouble = str(error)
                        self._say(f"not up to date, trying again: {error}")
                await asyncio.sleep(every_s * 2 ** min(self._failures, 4))  # a refusal costs the engine a pause

    async def bring_up_to_date(self, http: httpx.AsyncClient) -> None:
        """Stage the newest version and bring it to the engine, unless it serves it.

        Raises `Refused` where the engine does not answer or does not load it, and what reading the store raises.
        """
        newest = await asyncio.to_thread(self._staged)
        if newest is None:
            return
        number = str(newest.manifest.version)
        await self._end_pause(http)
        if await self._reported(http) != number:
            await self._load(http, newest.path, number)
        for version in list_versions(self._folder):
            if version.path != newest.path:
                delete_folder(version.path)

    def _staged(self) -> Version | None:
        """The newest version, whole, in the folder."""
        numbers = self._source.numbers()
        if not numbers:
            return None
        started, there = time.monotonic(), (version_path(self._folder, numbers[-1]) / MANIFEST).exists()
        self._make_room(numbers[-1])
        try:
            version = fetch(self._source, self._folder, numbers[-1], wanted=is_model_file)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            free_mb = shutil.disk_usage(self._folder).free / 1e6
            raise VersionError(
                f"no room for version {numbers[-1]} in {self._folder}, where {free_mb:,.0f} MB are free: "
                "give the folder room for two whole versions"
            ) from error
        if not there:
            self._say(f"version {numbers[-1]} is staged in {version.path}, in {time.monotonic() - started:.1f} s")
        return version

    def _make_room(self, number: int) -> None:
        """Leave one whole version beside the one that is to come: an engine that is away keeps none from going."""
        there = [version for version in list_versions(self._folder) if version.manifest.version < number]
        whole = [version.path for version in there if not lacking(version.path, version.manifest)]
        for version in there:
            if whole and version.path < whole[-1]:
                delete_folder(version.path)

    async def _load(self, http: httpx.AsyncClient, folder: Path, number: str) -> None:
        started = time.monotonic()
        (self._folder / MARK).touch()
        try:
            await post(http, f"{self._engine}/pause_generation", {"mode": "retract"})
            body = {"model_path": str(folder), "weight_version": number, "flush_cache": True}
            url = f"{self._engine}/update_weights_from_disk"
            answer = await post(http, url, body, timeout_s=self._load_timeout_s)
        finally:
            await self._end_pause(http)
        reported = await self._reported(http)
        if reported != number:
            raise Refused(f"{self._engine} reports version {reported!r} instead of {number!r}: {answer.get('message')}")
        self._say(f"version {number} is served by {self._engine}, {time.monotonic() - started:.1f} s after its pause")

    async def _end_pause(self, http: httpx.AsyncClient) -> None:
        """Let the engine go on if this process, or one that was killed, may have paused it."""
        if (self._folder / MARK).exists():
            await post(http, f"{self._engine}/continue_generation", {})
            (self._folder / MARK).unlink()

    async def _reported(self, http: httpx.AsyncClient) -> str | None:
        found = (await get(http, f"{self._engine}/model_info")).get("weight_version")
        return None if found is None else str(found)
