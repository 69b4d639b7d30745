"""The figures of `weir bench store --copies`: a store of many calls, made of copies of a small one.

Each copy has names of its own for its calls, sessions and groups, its own Parquet file, and its rows in the catalog,
but for the digests by which the proxy finds recorded histories. Bodies are left out: the figures are about metadata.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from weir.scripts.bench.store.calls import short_calls
from weir.scripts.bench.store.queries import QUERIES, best_of_ms, build, reward
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.files import FileChange, Publication, file_set, publish
from weir.store.clock import now_us
from weir.store.config import StoreConfig
from weir.store.disk import SYSTEM_DISK
from weir.store.parquet.call_file import file_id_of, write_call_file
from weir.store.parquet.files import read_row_groups
from weir.store.reader import connect, load_calls

COPIED_CALLS = 40_000
_NAMES = ("call_id", "session_id", "group_id", "parent_call", "stitch_call", "request_id")
_BODIES = ("request", "answer")
_GOES_ON = 3  # times that each query is asked


def measure_copies(root: Path, num_copies: int, num_calls: int = COPIED_CALLS) -> dict[str, float]:
    """Sizes, the time to open a snapshot, the queries, and a group read whole, over `num_copies` times the calls."""
    config = StoreConfig(root=root, segment_grace_s=0)
    build(config, short_calls(num_calls))
    catalog = Catalog.open(config)
    with catalog.reading().begin() as connection:
        files = file_set(connection).files
    table = pa.concat_tables([part for file in files for part in read_row_groups(root / file.path)])
    table = table.sort_by("group_id")
    for number in range(1, num_copies):
        _add_copy(catalog, config, _renamed(table, f"-{number}"))
    catalog.close()
    group = table["group_id"][0].as_py()
    sessions = table.filter(pc.equal(table["group_id"], group))["session_id"].unique().to_pylist()
    began = time.perf_counter()
    with connect(config) as db:
        figures = {"copies_connect_ms": (time.perf_counter() - began) * 1e3}
        counted = db.execute("SELECT count(*) FROM calls").fetchall()
        for name, query in QUERIES.items():
            figures[f"copies_{name}"] = best_of_ms(lambda query=query: db.execute(query).fetchall(), _GOES_ON)  # type: ignore[misc]
    assert counted == [(num_copies * num_calls,)], counted
    figures["copies_rebuild_group_ms"] = best_of_ms(lambda: load_calls(config, sessions), _GOES_ON)
    return figures | {
        "copies_calls": float(num_copies * num_calls),
        "copies_files_mb": sum(path.stat().st_size for path in config.data_dir.iterdir()) / 1e6,
        "copies_catalog_mb": (root / "catalog.sqlite").stat().st_size / 1e6,
        "copies_peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }


def _renamed(table: pa.Table, suffix: str) -> pa.Table:
    for name in (*_NAMES, *_BODIES):
        at, field = table.schema.get_field_index(name), table.schema.field(name)
        if name in _NAMES:
            changed = pc.binary_join_element_wise(table[name].cast(pa.string()), suffix, "")
        else:
            changed = pa.array([b"{}"] * table.num_rows, pa.binary())
        table = table.set_column(at, field, changed.cast(field.type))
    return table


def _add_copy(catalog: Catalog, config: StoreConfig, table: pa.Table) -> None:
    with catalog.reading().begin() as connection:
        generation = file_set(connection).generation
    written = write_call_file(config, SYSTEM_DISK, file_id_of([table["call_id"][0].as_py()]), _parts(table), now_us())
    assert written is not None
    file, groups, sessions = written
    publish(catalog, Publication(changes=[FileChange(file=file, groups=groups, sessions=sessions)]), generation)
    reward(catalog, {one.session_id: one.group_id for one in sessions})


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    yield table
