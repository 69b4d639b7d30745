"""Fixtures: a store in a temporary folder and a scripted judge. Folders import them in their conftest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support_rounds import Judge, scripted_judge

from weir.store.config import StoreConfig


@pytest.fixture
def store(tmp_path: Path) -> StoreConfig:
    """Settings of an empty store."""
    return StoreConfig(root=tmp_path / "store")


@pytest.fixture
def judge() -> Iterator[Judge]:
    """A kernel-evaluation server that reads its verdict from the candidate."""
    with scripted_judge() as running:
        yield running
