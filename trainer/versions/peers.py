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
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from weir.kernel_eval.client import tls_context
from weir.trainer.errors import TrainerUsageError, VersionError
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
LEFT_OUT_S = 60.0  # a helper that failed is asked for no further file
LEAST_BYTES_S = 1 << 16  # that a file comes with, once STANDS_STILL_S are over
_ANSWER_LIMIT_S = 30.0


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
        self._left_out: dict[str, float] = {}  # the helpers above that failed, until when
        self._ended = threading.Event()
        plain = {"accept-encoding": "identity"}
        self._http = httpx.Client(trust_env=False, timeout=_ANSWER_LIMIT_S, verify=tls_context(), headers=plain)

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
        if manifest is None:
            return False
        entry, address = _entry(manifest, name), _address(number, manifest, name)
        return any(self._answered(url, address, entry, None) for url in self._above)

    def fetch(self, number: int, manifest: bytes, name: str, target: Path) -> None:
        entry, address = _entry(manifest, name), _address(number, manifest, name)
        if not any(self._answered(url, address, entry, target) for url in self._above):
            self._store.fetch(number, manifest, name, target)
            self._held.num_received += target.stat().st_size
            verify_files(target.parent, {name: entry})
        self._held.add(number, hashlib.sha256(manifest).hexdigest(), name, target)

    def _answered(self, helper: str, address: str, entry: FileEntry, target: Path | None) -> bool:
        """Whether a helper has a file, once it has decided; with a target, whether it came and is what it should be.

        One that fails is said and left out for a while. Raises `VersionError` where it is at a newer version already.
        """
        if self._left_out.get(helper, 0.0) > time.monotonic():
            return False
        try:
            return self._asked(helper + address, entry, target)
        except (httpx.HTTPError, _Useless) as error:
            why = error if isinstance(error, _Useless) else f"cannot be had from there: {error!r}"
            self._say(f"{helper}{address} {why}; the next one above is asked")
            self._left_out[helper] = time.monotonic() + LEFT_OUT_S
            return False

    def _asked(self, url: str, entry: FileEntry, target: Path | None) -> bool:
        """As `_answered`. Raises what makes a helper useless, `_Useless` and `httpx.HTTPError`."""
        received, since_s = "", time.monotonic()
        while not self._ended.is_set():
            with self._http.stream("GET" if target is not None else "HEAD", url) as answer:
                if answer.status_code == 200:
                    _check_size(answer, entry)
                    if target is not None:
                        self._copy(answer, entry, target)
                    return True
                if answer.status_code == 409:
                    raise VersionError(f"{url} is not there any more, a newer version is")
                if answer.status_code == 410:
                    return False
                if answer.status_code != 404 or RECEIVED not in answer.headers:
                    raise _Useless(f"is no address of a helper: it answers {answer.status_code}")
                now = answer.headers[RECEIVED]
            if now != received:
                received, since_s = now, time.monotonic()
            elif time.monotonic() - since_s > STANDS_STILL_S:
                raise _Useless(f"does not come: that helper has received nothing for {STANDS_STILL_S:.0f} s")
            self._ended.wait(ASK_AGAIN_S)
        raise VersionError(f"{url} was waited for when this helper ended")

    def _copy(self, answer: httpx.Response, entry: FileEntry, target: Path) -> None:
        digest, size, begun_s = hashlib.sha256(), 0, time.monotonic()
        with target.open("wb") as file:
            for part in answer.iter_raw():
                file.write(part)
                digest.update(part)
                size += len(part)
                self._held.num_received += len(part)
                took_s = time.monotonic() - begun_s
                if self._ended.is_set():
                    raise VersionError(f"{answer.url} was coming when this helper ended")
                if took_s > STANDS_STILL_S and size < took_s * LEAST_BYTES_S:
                    raise _Useless(f"comes too slowly: {size} bytes in {took_s:.0f} s")
        if (digest.hexdigest(), size) != (entry.sha256, entry.size_bytes):
            raise _Useless("is not what the manifest says (sha256)")


class _Useless(Exception):
    """A helper does not give what it should; the message continues its address."""


def _check_size(answer: httpx.Response, entry: FileEntry) -> None:
    """Raises `_Useless` where another size is announced, or none: what comes is then no longer than it should be."""
    if (announced := answer.headers.get("content-length", "no size")) != str(entry.size_bytes):
        raise _Useless(f"is not what the manifest says ({entry.size_bytes} bytes): it has {announced}")


def checked(urls: Sequence[str]) -> list[str]:
    """Addresses of helpers, as they are asked. Raises `TrainerUsageError` where one is no such address, or is twice."""
    found = []
    for url in urls:
        parts = urlsplit(url)
        try:
            is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port
        except ValueError:  # of the port
            is_address = False
        if not is_address or parts.path.strip("/") or parts.query or parts.fragment:
            raise TrainerUsageError(f"the address of a helper is http://HOST:PORT, and {url!r} is not: correct it")
        found.append(url.rstrip("/"))
        if found.count(found[-1]) > 1:
            raise TrainerUsageError(f"--peer names {url} twice: name each helper once, in one order everywhere")
    return found


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
