"""Fixtures: a store in a temporary folder, and records as agents leave them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import support_stores

from weir.store.config import StoreConfig
from weir.store.log.writer import LogWriter
from weir.store.records.call_record import CallRecord

MakeCall = Callable[..., CallRecord]
Record = Callable[..., None]


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    """Settings of an empty store."""
    return StoreConfig(root=tmp_path / "store", segment_bytes=2**16, segment_grace_s=0)


@pytest.fixture(params=["sqlite", "postgresql"])
def either_catalog(request: pytest.FixtureRequest, tmp_path: Path) -> StoreConfig:
    """Settings of an empty store, with a catalog of each kind in turn."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgresql" else None
    return StoreConfig(root=tmp_path / "store", catalog_url=url)


@pytest.fixture
def make_call() -> MakeCall:
    """Builds a record from its name, prompt ids and output ids."""
    return support_stores.make_call


@pytest.fixture
def record(config: StoreConfig) -> Record:
    """Writes records to a log of the store, and waits until they are acknowledged. `seal=False` leaves them open."""
    writers: list[LogWriter] = []

    def write(records: Sequence[CallRecord], writer: str = "proxy", seal: bool = True) -> None:
        log = LogWriter(config.root, writer, config)
        for future in [log.append(one) for one in records]:
            future.result(120)
        if seal:
            log.close()
        writers.append(log)

    yield write  # type: ignore[misc]
    for log in writers:
        log.close()
