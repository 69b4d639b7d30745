"""Files written past the page cache: their bytes, their hash, and errors of the disk."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.store.log.block_buffer import BLOCK
from weir.trainer.model.direct_writer import BUFFER_BYTES, DirectFile
from weir.trainer.versions.version_folder import file_entry

SIZES = st.one_of(
    st.integers(0, 3 * BLOCK),
    st.integers(BUFFER_BYTES - 2, BUFFER_BYTES + 2),
    st.integers(0, 3 * BUFFER_BYTES),
)


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(SIZES, max_size=5))
def test_a_file_has_the_bytes_that_were_handed_in_and_its_entry_is_theirs(sizes: list[int]) -> None:
    parts = [bytes([i]) * size for i, size in enumerate(sizes)]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        with DirectFile(path) as file:
            assert [file.write(part) for part in parts] == sizes
        assert path.read_bytes() == b"".join(parts)
        assert file.entry == file_entry(path)
        assert file.entry.sha256 == sha256(b"".join(parts)).hexdigest()


def test_words_of_several_bytes_count_as_bytes(tmp_path: Path) -> None:
    with DirectFile(tmp_path / "state") as file:
        assert file.write(memoryview(b"12345678").cast("I")) == 8
    assert (tmp_path / "state").read_bytes() == b"12345678"


def test_a_disk_that_is_full_is_an_error_of_the_one_who_writes(tmp_path: Path) -> None:
    too_large = pytest.raises(OSError, match="File too large")
    with too_large, files_of_at_most(BUFFER_BYTES), DirectFile(tmp_path / "state") as file:
        for _ in range(4):
            file.write(bytes(BUFFER_BYTES))


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"before")
    with pytest.raises(FileExistsError):
        DirectFile(tmp_path / "state")
    assert (tmp_path / "state").read_bytes() == b"before"


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
