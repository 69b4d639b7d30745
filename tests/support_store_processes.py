"""What tests of the store have done in processes of their own."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from support_stores import Recording, make_call

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.leases import Lease
from weir.store.config import StoreConfig
from weir.store.errors import RoundConflict
from weir.store.log.writer import LogWriter
from weir.store.reader import connect
from weir.store.records.call_record import CallRecord
from weir.store.transfer.import_file import import_jsonl


def import_and_die(config: StoreConfig, path: Path, commits: int) -> None:
    """Import, and be killed just before the given commit of the catalog."""
    done = [0]

    def count(_: sa.Connection) -> None:
        done[0] += 1
        if done[0] == commits:
            os.kill(os.getpid(), signal.SIGKILL)

    sa.event.listen(sa.Engine, "commit", count)
    import_jsonl(config, path)


def record_and_die(config: StoreConfig, call: CallRecord) -> None:
    """Be killed once the call is recorded."""
    Recording(config, "writer-killed").record(call)
    os.kill(os.getpid(), signal.SIGKILL)


def read_and_die(config: StoreConfig) -> None:
    """Be killed while a connection is open."""
    connection = connect(config)
    assert connection is not None
    os.kill(os.getpid(), signal.SIGKILL)


def write_beyond_the_limit(config: StoreConfig, record: CallRecord, results: Any) -> None:
    """Say why a record is not acknowledged while no file may exceed 128 KiB, then write it without that limit."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**17, resource.RLIM_INFINITY))
    log = LogWriter(config.root, "proxy", config)
    results.put(str(log.append(record).exception(20)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    log.append(record).result(120)
    log.close()


def write_fifty(config: StoreConfig, name: str, start: Any) -> None:
    """Fifty calls of the session of that name, by a writer of that name, once everybody is there."""
    start.wait()
    log = LogWriter(config.root, name, config)
    for i in range(50):
        log.append(make_call(f"{name}-{i}", [i], [i], session_id=name)).result(120)
    log.close()


def claim(config: StoreConfig, lease: Lease, round_id: int, start: Any, results: Any) -> None:
    """Claim the groups a and b for a round, once everybody is there; says the round, or None: another one has them."""
    catalog = Catalog.open(config)
    start.wait()
    try:
        catalog.claim_groups(round_id, ["a", "b"], {"by": round_id}, lease)
    except RoundConflict:
        results.put(None)
    else:
        results.put(round_id)
