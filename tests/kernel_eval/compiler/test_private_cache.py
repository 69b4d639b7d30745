"""The compiler's cache of a contained process keeps what it is given, and leaves no other files."""

from __future__ import annotations

from pathlib import Path

import pytest
import triton
from triton.runtime.cache import get_cache_manager

from weir.kernel_eval.compiler.private_cache import PrivateCache, install

KEY = "00" * 32


def test_a_file_and_a_group_are_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    monkeypatch.setattr(triton.knobs.cache, "manager_class", None)
    install()
    cache = get_cache_manager(KEY)
    assert isinstance(cache, PrivateCache)
    paths = {"kernel.cubin": cache.put(b"\xff\x00", "kernel.cubin"), "kernel.json": cache.put("é", "kernel.json")}
    cache.put_group("kernel.json", paths)
    assert get_cache_manager(KEY).get_group("kernel.json") == paths
    assert [Path(path).read_bytes() for path in paths.values()] == [b"\xff\x00", "é".encode()]
    assert {path.name for path in Path(paths["kernel.json"]).parent.iterdir()} == {*paths, "__grp__kernel.json"}
