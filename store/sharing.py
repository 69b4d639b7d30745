"""Files of a store whose root is in object storage: put there before the catalog names them, fetched before a reader.

Invariants: the store's folder on a machine holds copies under the names of the objects, so that whatever reads the
store reads files; a copy that is missing is fetched, and any may be deleted. Where the root is a folder there is
nothing to do, and nothing is done. Not here: how a machine's own log gets there (log_sharing.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from xxhash import xxh3_128

from weir.store.catalog import Catalog
from weir.store.catalog_sharing import (
    compacted_before,
    deletable_objects,
    remove_shared_segments,
    waiting_segments,
)
from weir.store.config import StoreConfig
from weir.store.objects import Objects, objects_of
from weir.store.segments import SEALED_SUFFIX, list_segments

AT_ONCE = 8  # objects fetched at the same time


def fetch_log(config: StoreConfig, catalog: Catalog) -> None:
    """Have the segments that other machines shared and that are in no file yet."""
    objects = objects_of(config)
    if objects is not None:
        keys = [segment_key(segment_id) for segment_id in waiting_segments(catalog)]
        _fetch(objects, config.folder, keys)


def fetch_files(config: StoreConfig, paths: Sequence[str]) -> None:
    """Have these files, which the catalog names. Raises FileNotFoundError where one is gone."""
    objects = objects_of(config)
    if objects is not None:
        _fetch(objects, config.folder, paths)


def share_file(config: StoreConfig, path: Path) -> Path:
    """Put a finished Parquet file where all machines find it; the path that the catalog is to name.

    Its name gets the hash of its content: two machines that compact the same segments at once may know different
    parents, and neither may change the file of the other.
    """
    objects = objects_of(config)
    if objects is None:
        return path
    digest = xxh3_128()
    with path.open("rb") as file:
        while chunk := file.read(2**20):
            digest.update(chunk)
    named = path.rename(path.with_name(f"{path.stem}-{digest.hexdigest()[:16]}{path.suffix}"))
    objects.put(str(named.relative_to(config.folder)), named)
    return named


def delete_old_log(config: StoreConfig, catalog: Catalog, before_us: int) -> None:
    """Delete what came into a file before a time: this machine's segments and copies, and the objects."""
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
    """The name of a segment's object, which is its path in the store's folder."""
    return f"log/{segment_id}{SEALED_SUFFIX}"


def _fetch(objects: Objects, folder: Path, keys: Sequence[str]) -> None:
    missing = [key for key in keys if not (folder / key).exists()]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done in [pool.submit(objects.fetch, key, folder / key) for key in missing]:
            done.result()
