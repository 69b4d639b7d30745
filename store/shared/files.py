"""Files of a store in object storage: put there before the catalog names them, fetched before they are read.

Invariants: a machine's folder has copies under the names of the objects, so that all readers read files; a missing copy
is fetched, and a copy that nobody reads may be deleted. Where the root is a folder, nothing is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from xxhash import xxh3_128

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.shared_segments import (
    compacted_before,
    deletable_objects,
    remove_shared_segments,
    waiting_segments,
)
from weir.store.config import StoreConfig
from weir.store.errors import StoreCorrupt
from weir.store.log.segment_format import SEALED_SUFFIX, list_segments
from weir.store.shared.object_store import Objects, objects_of

AT_ONCE = 8  # objects fetched at the same time


def fetch_log(config: StoreConfig, catalog: Catalog) -> None:
    """Fetch the segments that other machines shared and that are in no file yet. Raises StoreCorrupt where one is gone.

    A segment that entered a file meanwhile, and was deleted, is no longer needed.
    """
    objects = objects_of(config)
    if objects is None:
        return
    try:
        fetch_keys(objects, config.folder, [segment_key(segment_id) for segment_id in waiting_segments(catalog)])
    except FileNotFoundError:
        for segment_id in waiting_segments(catalog):
            try:
                fetch_keys(objects, config.folder, [segment_key(segment_id)])
            except FileNotFoundError as error:
                if segment_id in waiting_segments(catalog):
                    raise StoreCorrupt(
                        f"{config.root}/{segment_key(segment_id)} is gone, and its calls are in no file yet; "
                        "weir store verify --repair, on each machine, puts it there again from a copy, or gives it up"
                    ) from error


def fetch_files(config: StoreConfig, paths: Sequence[str]) -> None:
    """Fetch files that the catalog names, while all copies are held. Raises FileNotFoundError where one is gone."""
    objects = objects_of(config)
    if objects is not None:
        fetch_keys(objects, config.folder, paths)


def share_file(config: StoreConfig, path: Path) -> Path:
    """Put a finished Parquet file into object storage; returns the path that the catalog is to name.

    The name gets the hash of the content: two machines that compact the same segments at once may know different
    parents, and neither may change the other's file.
    """
    objects = objects_of(config)
    if objects is None:
        return path
    with path.open("rb") as file:
        digest = content_digest(iter(lambda: file.read(2**20), b""))
    named = path.rename(path.with_name(f"{path.stem}-{digest}{path.suffix}"))
    objects.put(str(named.relative_to(config.folder)), named, named_by_content=True)
    return named


def delete_old_log(config: StoreConfig, catalog: Catalog, before_us: int) -> None:
    """Delete segments that entered a file before a time: this machine's own, its copies, and the objects."""
    objects = objects_of(config)
    if objects is None:
        return
    here = {segment.segment_id: segment for segment in list_segments(config.log_dir) if segment.sealed}
    for segment_id in compacted_before(catalog, here, before_us):
        here[segment_id].path.unlink(missing_ok=True)
    old = deletable_objects(catalog, before_us)
    objects.delete([segment_key(segment_id) for segment_id in old])
    remove_shared_segments(catalog, old)


def segment_key(segment_id: str) -> str:
    """The key of a segment's object: its path in the store's folder."""
    return f"log/{segment_id}{SEALED_SUFFIX}"


def content_digest(chunks: Iterable[bytes]) -> str:
    """The part of a shared file's name that is the hash of its content."""
    digest = xxh3_128()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()[:16]


def fetch_keys(objects: Objects, folder: Path, keys: Sequence[str]) -> int:
    """Fetch missing objects into a folder; returns their number. Raises FileNotFoundError where one is gone."""
    missing = [key for key in keys if not (folder / key).exists()]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done in [pool.submit(objects.fetch, key, folder / key) for key in missing]:
            done.result()
    return len(missing)
