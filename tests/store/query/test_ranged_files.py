"""SQL over a store in object storage, on a machine that has none of its files: which bytes of them are fetched."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import duckdb
import pytest
from support_s3 import S3Server
from support_store_fixtures import MakeCall
from support_stores import Recording

from weir.store.config import StoreConfig
from weir.store.errors import QueryStopped, StoreCorrupt, StoreUnavailable
from weir.store.maintenance.compact import compact
from weir.store.query.question import answer_rows, asking
from weir.store.query.views import open_views
from weir.store.shared.object_store import Objects
from weir.store.shared.part_copies import BLOCK_BYTES

Machine = Callable[[str], StoreConfig]
BODY_BYTES = 2**19
OF_VERSION = "SELECT version_max, count(*), sum(num_output_tokens) FROM calls WHERE version_max = 4 GROUP BY 1"


@pytest.fixture
def machine(s3: S3Server, tmp_path: Path) -> Machine:
    given = {"root": s3.new_root(), "s3_endpoint": s3.url, "catalog_url": f"sqlite:///{tmp_path / 'shared.sqlite'}"}
    return lambda name: StoreConfig.model_validate({**given, "local_folder": tmp_path / name})


@pytest.fixture
def fill(machine: Machine, make_call: MakeCall) -> Callable[..., int]:
    """Records calls with large bodies, one file for each version; returns the size of all files."""

    def record(versions: list[str], num_calls: int) -> int:
        writer = Recording(machine("a"), "writer-a")
        for version in versions:
            bodies = random.Random(version)
            for i in range(num_calls):
                given: dict[str, Any] = {"request": bodies.randbytes(BODY_BYTES), "versions": [(2, version)]}
                writer.record(make_call(f"c{version}-{i:02}", [i], [1, 2], group_id=f"g{version}", **given))
            compact(machine("a"), seal_open=True)
        writer.close()
        return sum(path.stat().st_size for path in machine("a").data_dir.glob("*.parquet"))

    return record


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """The bytes of each object that were fetched by range."""
    found: dict[str, int] = {}
    read_range = Objects.read_range

    def counted(objects: Objects, key: str, start: int, end: int) -> bytes:
        data = read_range(objects, key, start, end)
        found[key] = found.get(key, 0) + len(data)
        return data

    monkeypatch.setattr(Objects, "read_range", counted)
    yield found


def ask(config: StoreConfig, query: str) -> list[tuple[Any, ...]]:
    with open_views(config) as db, asking(db):
        return db.execute(query).fetchall()


def test_a_question_fetches_the_columns_and_row_groups_that_it_needs(
    machine: Machine, fill: Callable[..., int], fetched: dict[str, int]
) -> None:
    stored = fill(["3", "4"], 10)
    assert ask(machine("new"), OF_VERSION) == [(4, 10, 20)]
    assert list(machine("new").data_dir.glob("*")) == []
    assert (
        len(fetched) == 2 and sum(fetched.values()) < stored / 4
    )  # DuckDB reads a megabyte of a nested column at once
    occupied = sum(path.stat().st_blocks * 512 for path in (machine("new").folder / "parts").iterdir())
    assert occupied < stored / 4
    fetched.clear()
    assert ask(machine("new"), OF_VERSION) == [(4, 10, 20)]
    assert fetched == {}, "what was asked for once is on this machine"
    bodies = "SELECT md5(request::VARCHAR), * FROM stored.calls WHERE group_id = 'g4' ORDER BY call_id"
    assert ask(machine("new"), bodies) == ask(machine("a"), bodies)
    assert len(fetched) == 1 and sum(fetched.values()) < 0.6 * stored, "the other file has no call of that group"


def test_files_of_other_versions_are_not_asked_for(
    machine: Machine, fill: Callable[..., int], fetched: dict[str, int]
) -> None:
    fill(["1", "2", "4"], 3)
    with open_views(machine("new")) as db:
        [first] = fetched  # for the columns
        with asking(db):
            assert list(answer_rows(db, OF_VERSION, {}).rows) == [(4, 3, 6)]
        assert len(fetched) == 2 and fetched[first] <= 2 * BLOCK_BYTES
        assert db.execute("SELECT count(*) FROM calls").fetchall() == [(9,)]
        assert len(fetched) == 3


def test_parts_that_are_damaged_or_deleted_are_fetched_again_and_a_lost_object_is_named(
    machine: Machine, fill: Callable[..., int], fetched: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(["4"], 4)
    config = machine("new").model_copy(update={"local_copies_bytes": 0})
    with open_views(config) as db:
        assert db.execute(OF_VERSION).fetchall() == [(4, 4, 8)]
        [part] = (config.folder / "parts").iterdir()
        whole = part.read_bytes()
        part.write_bytes(bytes(byte ^ 1 for byte in whole[:-100]))
        assert db.execute(OF_VERSION).fetchall() == [(4, 4, 8)]
        part.unlink()
        assert db.execute(OF_VERSION).fetchall() == [(4, 4, 8)]
        assert part.exists()
        part.unlink()
        for raised, said in ((KeyboardInterrupt(), QueryStopped), (StoreUnavailable("away"), StoreUnavailable)):
            with monkeypatch.context() as patched, pytest.raises(said, match=r"as asked$|^away$"), asking(db):
                patched.setattr(Objects, "read_range", Mock(side_effect=raised))
                db.execute(OF_VERSION).fetchall()
        part.unlink()
        [key] = fetched
        assert isinstance(config.root, str)
        Objects(config.root, config.s3_endpoint).delete([key])
        with pytest.raises(StoreCorrupt, match=rf"^{config.root}/{key} is gone; weir store verify"), asking(db):
            db.execute(OF_VERSION).fetchall()
        with pytest.raises(duckdb.PermissionException):
            db.execute("FROM read_parquet('weirobjects://data/other.parquet')")
    part.write_bytes(whole)
    del db
    while part.exists():  # the connection's thread releases what exceeds the bound
        pass
    with pytest.raises(StoreCorrupt, match="is gone"):
        open_views(config)
