"""Object storage: the bucket and prefix that machines share, for a store whose root is an s3:// URL.

Invariants: an object never changes. It is put under the condition that none of its name is there (If-None-Match), so
that of two writers one wins and the other is told. Storage takes no condition for what is larger than one request: that
is put only under a name that follows from its content, so that whoever puts it puts the same, and is refused under any
other; it is part of the store by what names it, which is put or committed under a condition. What is fetched appears in
its folder whole, by a rename. A key is the path in the store's folder, there as here. Not here: which files are shared,
and when (sharing.py, log_sharing.py).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from weir.store.atomic_file import written_aside
from weir.store.config import ONE_REQUEST_BYTES, StoreConfig
from weir.store.errors import ObjectConflict, StoreUnavailable

CONNECT_TIMEOUT_S = 5
TIMEOUT_S = 600  # of one request, with its body
RETRY_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One object as the storage lists it; `changed_us` is by its own clock."""

    key: str
    num_bytes: int
    changed_us: int


class Objects:
    """The objects under a root. Safe from several threads."""

    def __init__(self, root: str, endpoint: str | None) -> None:
        self.root = root.rstrip("/")
        plain = endpoint is not None and endpoint.startswith("http://")
        self._store = S3Store.from_url(
            self.root,
            config={} if endpoint is None else {"endpoint": endpoint},
            client_options={
                "allow_http": plain,
                "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
                "timeout": timedelta(seconds=TIMEOUT_S),
            },
            retry_config={"max_retries": 5, "retry_timeout": timedelta(seconds=RETRY_S)},
        )

    def put(self, key: str, source: Path | bytes, *, named_by_content: bool = False) -> None:
        """Make an object. The same bytes again change nothing; raises ObjectConflict where it has others.

        Raises StoreUnavailable for what is larger than one request and has no name that follows from its content.
        """
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        with self._asked("put", key):
            try:
                if size <= ONE_REQUEST_BYTES:
                    obstore.put(self._store, key, source, mode="create")
                    return
                if not named_by_content:
                    raise _too_large(f"{self.root}/{key}", size)
                if not self._is_there(key):
                    obstore.put(self._store, key, source)
                    return
            except AlreadyExistsError:
                pass
            if self._digest(key) != _digest_of(source):
                raise ObjectConflict(
                    f"cannot put {self.root}/{key}: an object of that name is there with another content, "
                    "which another writer put first"
                )

    def fetch(self, key: str, path: Path) -> None:
        """Copy an object into a read-only file, which appears whole. Raises FileNotFoundError where there is none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_aside(path, durable=True) as aside:
            with self._asked("fetch", key), aside.open("wb") as file:
                for chunk in obstore.get(self._store, key).stream():
                    file.write(chunk)
            aside.chmod(0o444)

    def read(self, key: str) -> bytes | None:
        """A small object, if it is there."""
        with self._asked("read", key), contextlib.suppress(FileNotFoundError):
            return bytes(obstore.get(self._store, key).bytes())
        return None

    def names(self, folder: str) -> list[str]:
        """The keys under a folder, sorted."""
        return [found.key for found in self.listed(folder)]

    def listed(self, folder: str) -> list[Listed]:
        """What is under a folder, by key."""
        with self._asked("list", folder):
            found = [one for page in obstore.list(self._store, folder) for one in page]
        listed = (
            Listed(key=one["path"], num_bytes=one["size"], changed_us=int(one["last_modified"].timestamp() * 1e6))
            for one in found
        )
        return sorted(listed, key=lambda one: one.key)

    def chunks(self, key: str) -> Iterator[bytes]:
        """An object's bytes. Raises FileNotFoundError where there is none."""
        with self._asked("read", key):
            for chunk in obstore.get(self._store, key).stream():
                yield bytes(chunk)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, which may be gone already."""
        if keys:
            with self._asked("delete", keys[0]):
                obstore.delete(self._store, list(keys))

    def _is_there(self, key: str) -> bool:
        with contextlib.suppress(FileNotFoundError):
            obstore.head(self._store, key)
            return True
        return False

    def _digest(self, key: str) -> bytes:
        digest = hashlib.sha256()
        for chunk in obstore.get(self._store, key).stream():
            digest.update(chunk)
        return digest.digest()

    @contextlib.contextmanager
    def _asked(self, verb: str, key: str) -> Iterator[None]:
        try:
            yield
        except BaseError as error:
            reason = str(error).partition("\n")[0]
            raise StoreUnavailable(
                f"cannot {verb} {self.root}/{key}: {reason}; look at store.root, store.s3_endpoint, "
                "and the AWS_… variables of the environment"
            ) from error


def _too_large(name: str, num_bytes: int) -> StoreUnavailable:
    return StoreUnavailable(
        f"cannot put {name}: it has {num_bytes:,} bytes, and storage takes at most {ONE_REQUEST_BYTES:,} under the "
        "condition that nothing of that name is there; lower store.segment_bytes if it is a segment of the log"
    )


def objects_of(config: StoreConfig) -> Objects | None:
    """The object storage of a store; none where its root is a folder."""
    return Objects(config.root, config.s3_endpoint) if isinstance(config.root, str) else None


def _digest_of(source: Path | bytes) -> bytes:
    if isinstance(source, bytes):
        return hashlib.sha256(source).digest()
    with source.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
