"""Versions from other helpers of the same store: a file leaves the store once, and every helper passes it on to two.

The helpers stand in one order, which all of them know. The first one has its files from the store, number i from number
(i - 1) // 2; where that one does not answer, or stands still, from the ones above it, and at last from the store.
Invariants: manifests come from the store, and a file is used and passed on only if it has the hash that its manifest
says, so that no helper need trust another.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

import httpx
import msgspec

from weir.kernel_eval.client import tls_context
from weir.trainer.errors import VersionError
from weir.trainer.versions.delta_file import SUFFIX
from weir.trainer.versions.sources import Source
from weir.trainer.versions.version_folder import (
    MANIFEST,
    FileEntry,
    VersionManifest,
    list_versions,
    verify_files,
    version_path,
)

RECEIVED = "weir-received"  # the header with the bytes that a helper has received since it began
STANDS_STILL_S = 120.0  # without a further byte, until a helper counts as one that has nothing to give
ASK_AGAIN_S = 0.2
_ANSWER_LIMIT_S = 30.0
_PART_BYTES = 1 << 20


class Held:
    """What a helper can pass on: the versions in its folder, and what has arrived of the one that it fetches."""

    def __init__(self, root: Path) -> None:
        self.num_received = 0
        self._root = root
        self._arrived: dict[tuple[str, str], Path] = {}  # the newest version's files, verified

    def add(self, number: int, digest: str, name: str, path: Path) -> None:
        """A verified file is at `path`, until its version's folder appears."""
        begun = {key: known for key, known in self._arrived.items() if key[0] == f"{number}-{digest}"}
        self._arrived = {**begun, (f"{number}-{digest}", name): path}

    def open(self, number: int, digest: str, name: str) -> BinaryIO | None:
        """A file of a version; None where it is not here, or is just being moved to its place."""
        place = self._arrived.get((f"{number}-{digest}", name))
        if self.has(number, digest) and "/" not in name:
            place = version_path(self._root, number) / name
        try:
            return None if place is None else place.open("rb")
        except (FileNotFoundError, IsADirectoryError):
            return None

    def has(self, number: int, digest: str) -> bool:
        """Whether a version is here, whole."""
        file = version_path(self._root, number) / MANIFEST
        try:
            return hashlib.sha256(file.read_bytes()).hexdigest() == digest
        except FileNotFoundError:
            return False

    def newest(self) -> int | None:
        """The newest version that is here."""
        numbers = [version.manifest.version for version in list_versions(self._root)]
        return numbers[-1] if numbers else None


class PeerVersions:
    """The versions of a store, of which the files come from the helpers `above`, the nearest first, where they can."""

    def __init__(self, store: Source, held: Held, above: Sequence[str], say: Callable[[str], None]) -> None:
        self._store = store
        self._held = held
        self._above = above
        self._say = say
        self._ended = threading.Event()
        self._http = httpx.Client(trust_env=False, timeout=_ANSWER_LIMIT_S, verify=tls_context())

    def end(self) -> None:
        """Wait for no helper any more; a file that is waited for raises `VersionError`."""
        self._ended.set()

    def numbers(self) -> list[int]:
        return self._store.numbers()

    def manifest(self, number: int) -> bytes | None:
        return self._store.manifest(number)

    def offers(self, number: int, name: str) -> bool:
        if self._store.offers(number, name):
            return True
        manifest = self.manifest(number)
        address = "" if manifest is None else _address(number, manifest, name)
        return bool(address) and any(self._answered(url + address, None, None) for url in self._above)

    def fetch(self, number: int, manifest: bytes, name: str, target: Path) -> None:
        entry, address = _entry(manifest, name), _address(number, manifest, name)
        if not any(self._answered(url + address, entry, target) for url in self._above):
            self._store.fetch(number, manifest, name, target)
            self._held.num_received += target.stat().st_size
            verify_files(target.parent, {name: entry})
        self._held.add(number, hashlib.sha256(manifest).hexdigest(), name, target)

    def _answered(self, url: str, entry: FileEntry | None, target: Path | None) -> bool:
        """Whether a helper has a file, once it has decided; with a target, whether it came and is what it should be.

        Raises `VersionError` where the helper is at a newer version already.
        """
        received, since_s = -1, time.monotonic()
        while not self._ended.is_set():
            try:
                with self._http.stream("GET" if target is not None else "HEAD", url) as answer:
                    if answer.status_code == 200:
                        return target is None or entry is None or self._copied(answer, entry, target)
                    if answer.status_code == 409:
                        raise VersionError(f"{url} is not there any more, a newer version is")
                    if answer.status_code != 404:
                        return False
                    now = int(answer.headers.get(RECEIVED, 0))
            except httpx.HTTPError as error:
                self._say(f"{url} cannot be had from there: {error!r}; the next one above is asked")
                return False
            if now != received:
                received, since_s = now, time.monotonic()
            elif time.monotonic() - since_s > STANDS_STILL_S:
                self._say(f"{url} does not come: that helper has received nothing for {STANDS_STILL_S:.0f} s")
                return False
            self._ended.wait(ASK_AGAIN_S)
        raise VersionError(f"{url} was waited for when this helper ended")

    def _copied(self, answer: httpx.Response, entry: FileEntry, target: Path) -> bool:
        digest, size = hashlib.sha256(), 0
        with target.open("wb") as file:
            for part in answer.iter_bytes(_PART_BYTES):
                file.write(part)
                digest.update(part)
                size += len(part)
                self._held.num_received += len(part)
        if (digest.hexdigest(), size) == (entry.sha256, entry.size_bytes):
            return True
        self._say(f"{answer.url} is not what the manifest says (sha256 or size); the next one above is asked")
        target.unlink()
        return False


def above(urls: Sequence[str], own: str) -> list[str]:
    """The helpers that `own` gets its files from, the nearest first. Raises ValueError where it is not among them."""
    place, found = urls.index(own), []
    while place > 0:
        place = (place - 1) // 2
        found.append(urls[place])
    return found


def _entry(manifest: bytes, name: str) -> FileEntry:
    known = msgspec.json.decode(manifest, type=VersionManifest)
    return known.files[name] if name in known.files else known.deltas[name.removesuffix(SUFFIX)]


def _address(number: int, manifest: bytes, name: str) -> str:
    return f"/versions/{number}/{hashlib.sha256(manifest).hexdigest()}/{quote(name, safe='')}"
