"""The catalog's migrations: in both databases, from several threads at once, all or nothing."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.schema import metadata
from weir.store.config import StoreConfig
from weir.store.errors import StoreUnavailable

NEWEST = "0019_weight_groups"
VERSION_1 = Path(__file__).parents[1] / "version_1" / "catalog.sqlite"


def revision_of(config: StoreConfig) -> str:
    catalog = Catalog.open(config)
    try:
        with catalog.reading().begin() as connection:
            return str(connection.scalar(sa.text("SELECT version_num FROM alembic_version")))
    finally:
        catalog.close()


def test_a_new_catalog_is_at_the_newest_revision_in_either_database(either_catalog: StoreConfig) -> None:
    assert revision_of(either_catalog) == NEWEST
    assert revision_of(either_catalog) == NEWEST  # opened again, nothing is pending


def test_threads_that_open_different_catalogs_at_once_make_whole_ones(tmp_path: Path) -> None:
    def differences(number: int) -> list[object]:
        catalog = Catalog.open(StoreConfig(root=tmp_path / f"store{number}"))
        try:
            with catalog.reading().connect() as connection:
                return list(compare_metadata(MigrationContext.configure(connection), metadata))
        finally:
            catalog.close()

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(differences, range(8))) == [[]] * 8


def test_an_upgrade_that_fails_leaves_the_catalog_at_its_old_revision(config: StoreConfig) -> None:
    config.root.mkdir()
    shutil.copy(VERSION_1, config.root / "catalog.sqlite")
    engine = sa.create_engine(config.url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE retired_groups (in_the_way INTEGER)"))  # revision 0007 makes it
    with pytest.raises(StoreUnavailable, match="retired_groups already exists"):
        Catalog.open(config)
    with engine.begin() as connection:
        assert connection.scalar(sa.text("SELECT version_num FROM alembic_version")) == "0001_first"
        assert not sa.inspect(connection).has_table("budgets")  # revision 0002 makes it
        connection.execute(sa.text("DROP TABLE retired_groups"))
    engine.dispose()
    assert revision_of(config) == NEWEST
