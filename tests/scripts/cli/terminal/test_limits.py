"""The limits of `weir sql` hold where DuckDB's own do not: a value that is computed in one piece."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from weir.scripts.cli.terminal.limits import contained
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig

CODE = """
import sys
from pathlib import Path
from weir.scripts.cli.main import main
try:
    main()
finally:  # of this program alone: ru_maxrss also counts what its parent was when it forked
    print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0], file=sys.stderr)
"""


@pytest.mark.parametrize("value", ["repeat('a', 3000000000)", "list_sum(range(300000000))"])
def test_a_single_value_that_needs_more_memory_than_allowed_stops_the_question(tmp_path: Path, value: str) -> None:
    Catalog.open(StoreConfig(root=tmp_path)).close()
    words = ["sql", f"SELECT length({value}::VARCHAR)", "--memory-mb", "64", "--root", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", CODE, *words], capture_output=True, text=True, check=False)
    said, peak_kb = done.stderr.splitlines()
    assert done.returncode == 1 and "it needs more memory than allowed" in said
    assert int(peak_kb) < 1_000_000


def test_a_question_that_cannot_be_interrupted_ends_its_process_and_says_so() -> None:
    code = """
import time, weir.scripts.cli.terminal.limits as limits
limits.GRACE_S = 0
with limits.contained(64, 0.1):
    while True:
        time.sleep(1)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("weir: the query was stopped: it took longer than 0.1 s and made a value")


def test_the_limit_of_memory_is_given_back() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(MemoryError), contained(64, 60):
        assert resource.getrlimit(resource.RLIMIT_DATA) != before
        bytearray(2**30)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
