"""What queries spill: bounded, in a folder of the connection that is deleted also where its process was killed."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from weir.store.config import StoreConfig
from weir.store.errors import QueryStopped, StoreUnavailable
from weir.store.maintenance.compact import compact
from weir.store.maintenance.upkeep import collect_garbage
from weir.store.query.question import asking
from weir.store.reader import connect

LARGE = """SELECT count(*), max(place) FROM (
    SELECT row_number() OVER (PARTITION BY i % 7 ORDER BY hash(i)) AS place, repeat('x', 20) || i AS text
    FROM range(3000000) t(i)
) WHERE length(text) > 20"""
COUNTED = [(3_000_000, 428_572)]

PROGRAM = """
import os, resource, signal, sys
from pathlib import Path
from weir.store.config import StoreConfig
from weir.store.query.question import asking
from weir.store.reader import connect
root, query, file_bytes = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
db = connect(StoreConfig(root=root, query_memory_mb=128))
if file_bytes:  # as on a full disk: a file cannot grow
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
with asking(db):
    db.execute(query)
    print(db.fetchone(), sum(path.is_file() for path in (root / "spill").rglob("duckdb_temp_*")), flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def small(config: StoreConfig) -> StoreConfig:
    """Settings by which a large query has to spill."""
    return config.model_copy(update={"query_memory_mb": 128})


def folders(config: StoreConfig) -> list[Path]:
    return [path for path in (config.folder / "spill").iterdir() if path.is_dir()]


def answer(config: StoreConfig) -> list[tuple[int, ...]]:
    with connect(config) as db, asking(db):
        return db.execute(LARGE).fetchall()


def program(config: StoreConfig, query: str, file_bytes: int) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", PROGRAM, str(config.root), query, str(file_bytes)]
    return subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )


def test_a_query_that_needs_more_memory_spills_and_leaves_nothing(small: StoreConfig) -> None:
    assert answer(small) == COUNTED
    gc.collect()
    assert folders(small) == []


@pytest.mark.parametrize(
    ("spill_mb", "said"),
    [
        (0, "needs more memory than allowed; raise the limit (--memory-mb)"),
        (1, "needs more memory and more room on the disk than allowed; raise the limits (--memory-mb, store."),
    ],
)
def test_a_query_that_needs_more_than_it_may_spill_is_stopped_and_says_why(
    small: StoreConfig, spill_mb: int, said: str
) -> None:
    config = small.model_copy(update={"query_spill_mb": spill_mb})
    with pytest.raises(QueryStopped) as stopped:
        answer(config)
    assert said in str(stopped.value)
    assert (config.folder / "spill").exists() == bool(spill_mb)


def test_a_full_disk_stops_the_query_and_is_named(small: StoreConfig) -> None:
    connect(small).close()  # its catalog is there
    with program(small, LARGE, 2**20) as process:
        _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "QueryStopped: the query was stopped: what it spills could not be written" in said
    assert "free some space on that disk, lower store.query_spill_mb, or ask for less" in said
    assert folders(small) == []


def test_a_folder_that_cannot_be_made_is_an_error_that_names_the_setting(small: StoreConfig) -> None:
    connect(small.model_copy(update={"query_spill_mb": 0})).close()
    (small.folder / "spill").write_text("not a folder")
    with pytest.raises(StoreUnavailable, match=r"set store\.query_spill_mb = 0"):
        connect(small)


@pytest.mark.parametrize("cleaner", [lambda config: connect(config).close(), compact, collect_garbage])
def test_what_a_killed_query_left_is_deleted_and_what_a_living_one_needs_is_not(
    small: StoreConfig, cleaner: object
) -> None:
    living = connect(small)
    with program(small, "SELECT i, repeat('x', 20) || i FROM range(3000000) t(i) ORDER BY hash(i)", 0) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert int(line.split()[-1]) > 1, "it has spilled"
        kept = folders(small)
        assert len(kept) == 2
        cleaner(small)  # type: ignore[operator]
        assert sorted(folders(small)) == sorted(kept)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=120)
    assert sorted(folders(small)) == sorted(kept)
    cleaner(small)  # type: ignore[operator]
    gc.collect()
    assert len(folders(small)) == 1
    with asking(living):
        assert living.execute(LARGE).fetchall() == COUNTED
    living.close()
