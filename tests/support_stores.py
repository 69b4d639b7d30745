"""What lies in a store, read without anything that readers take out."""

from __future__ import annotations

import pyarrow.parquet as pq

from weir.store.catalog import Catalog
from weir.store.catalog_files import file_set
from weir.store.config import StoreConfig
from weir.store.segments import frame_head, list_segments


def stored_names(config: StoreConfig) -> list[str]:
    """Every call of the files and of the segments that are in none; one that lies there twice is there twice."""
    catalog = Catalog.open(config)
    with catalog.reading().begin() as connection:
        files = file_set(connection)
    catalog.close()
    names = [name for file in files.files for name in pq.read_table(config.root / file.path)["call_id"].to_pylist()]
    hot = [segment for segment in list_segments(config.log_dir) if segment.segment_id not in files.compacted]
    return names + [record.call_id for segment in hot for record in segment.read().records]


def frame_bytes(payload: bytes) -> bytes:
    """One framed payload, as it lies in a segment."""
    return frame_head(payload) + payload
