"""Object storage: the bucket and prefix that machines share, for a store whose root is an s3:// URL.

Invariants: an object never changes. It is put under the condition that its name is free (If-None-Match), so that of two
writers one succeeds and the other gets an error. Storage takes no condition for objects larger than one request: those
are put only under a name that contains the hash of their content, so that every writer puts the same bytes. They become
part of the store through what names them, which is put or committed under a condition. Fetched objects appear in their
folder whole, by a rename. A key is the path in the store's folder.
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
TIMEOUT_S = 600  # of one request, body included
RETRY_S = 60
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html: at most 10,000 parts, each of at least 5 MiB
MOST_PARTS = 10_000
PART_BYTES = 8 * 2**20
PARTS_IN_MEMORY = 96 * 2**20  # bytes of all parts that are sent at once, unless one alone is larger


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """An object as storage lists it; `changed_us` is by the clock of the storage."""

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
        """Create an object; the same bytes again change nothing. Raises ObjectConflict where it has others.

        Raises StoreUnavailable for an object larger than one request whose name does not contain its hash.
        """
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        with self._request("put", key):
            try:
                if size <= ONE_REQUEST_BYTES:
                    obstore.put(self._store, key, source, mode="create")
                    return
                if not named_by_content:
                    raise _too_large(f"{self.root}/{key}", size)
                if not self._is_there(key):
                    part_bytes, at_once = _parts(size)
                    obstore.put(self._store, key, source, chunk_size=part_bytes, max_concurrency=at_once)
                    return
            except AlreadyExistsError:
                pass
            if self._digest(key) != _digest_of(source):
                raise ObjectConflict(
                    f"cannot put {self.root}/{key}: an object with that key exists already and its content differs: "
                    "another writer put it first"
                )

    def fetch(self, key: str, path: Path) -> None:
        """Copy an object into a read-only file, which appears whole. Raises FileNotFoundError where there is none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_aside(path, durable=True) as aside:
            with self._request("fetch", key), aside.open("wb") as file:
                for chunk in obstore.get(self._store, key).stream():
                    file.write(chunk)
            aside.chmod(0o444)

    def read(self, key: str) -> bytes | None:
        """The bytes of a small object, or None."""
        with self._request("read", key), contextlib.suppress(FileNotFoundError):
            return bytes(obstore.get(self._store, key).bytes())
        return None

    def read_range(self, key: str, start: int, end: int) -> bytes:
        """The bytes of a range; fewer where the object ends before. Raises FileNotFoundError where there is none."""
        with self._request("read", key):
            return bytes(obstore.get_range(self._store, key, start=start, end=end))

    def names(self, folder: str) -> list[str]:
        """The keys under a folder, sorted."""
        return [found.key for found in self.listed(folder)]

    def listed(self, folder: str) -> list[Listed]:
        """The objects under a folder, by key."""
        with self._request("list", folder):
            found = [one for page in obstore.list(self._store, folder) for one in page]
        listed = (
            Listed(key=one["path"], num_bytes=one["size"], changed_us=int(one["last_modified"].timestamp() * 1e6))
            for one in found
        )
        return sorted(listed, key=lambda one: one.key)

    def chunks(self, key: str) -> Iterator[bytes]:
        """The bytes of an object, in chunks. Raises FileNotFoundError where it does not exist."""
        with self._request("read", key):
            for chunk in obstore.get(self._store, key).stream():
                yield bytes(chunk)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; no error where they are gone."""
        if keys:
            with self._request("delete", keys[0]):
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
    def _request(self, verb: str, key: str) -> Iterator[None]:
        try:
            yield
        except BaseError as error:
            reason = str(error).partition("\n")[0]
            raise StoreUnavailable(
                f"cannot {verb} {self.root}/{key}: {reason}; look at store.root, store.s3_endpoint, "
                "and the AWS_… variables of the environment"
            ) from error


def _parts(num_bytes: int) -> tuple[int, int]:
    """The size of the parts that an object of that size is put in, and how many of them are sent at once."""
    part_bytes = max(PART_BYTES, -(-num_bytes // MOST_PARTS))
    return part_bytes, max(1, PARTS_IN_MEMORY // part_bytes)


def _too_large(name: str, num_bytes: int) -> StoreUnavailable:
    return StoreUnavailable(
        f"cannot put {name}: it has {num_bytes:,} bytes, and storage takes at most {ONE_REQUEST_BYTES:,} under the "
        "condition that the key does not exist; lower store.segment_bytes if it is a segment of the log"
    )


def objects_of(config: StoreConfig) -> Objects | None:
    """The object storage of a store; None where its root is a folder."""
    return Objects(config.root, config.s3_endpoint) if isinstance(config.root, str) else None


def _digest_of(source: Path | bytes) -> bytes:
    if isinstance(source, bytes):
        return hashlib.sha256(source).digest()
    with source.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
