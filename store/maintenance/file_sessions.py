"""Notes the sessions of files that an earlier Weir wrote, so that readers need not fetch those files for others."""

from __future__ import annotations

import logging

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.engine import Area
from weir.store.catalog.files import note_sessions, unnoted_files
from weir.store.config import StoreConfig
from weir.store.errors import StoreCorrupt
from weir.store.parquet.files import sessions_in
from weir.store.shared.files import fetch_files

logger = logging.getLogger("weir.store.maintenance.file_sessions")


def note_earlier_files(catalog: Catalog, config: StoreConfig) -> None:
    """Note the sessions of every file that has none noted. The caller holds the compactor's lock.

    A damaged file stays as it is: until it is repaired, readers fetch all files.
    """
    with catalog.reading().begin() as connection:
        unnoted = unnoted_files(connection)
    for file_id, path in unnoted.items():
        try:
            fetch_files(config, [path])
            sessions = sessions_in(config.folder / path)
        except (StoreCorrupt, FileNotFoundError) as error:
            logger.warning("the sessions of %s cannot be noted: %s", path, error)
            continue
        with catalog.writing(Area.RECORDS).begin() as connection:
            note_sessions(connection, file_id, sessions)
