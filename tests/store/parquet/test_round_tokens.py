"""The tokens of a round in S3, among whatever else lies in the round's folder there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support_s3 import S3Server

from weir.store.config import StoreConfig
from weir.store.parquet.round_tokens import (
    RoundCall,
    find_round_tokens,
    read_round_call,
    round_tokens_file,
    share_round_tokens,
    write_round_tokens,
)
from weir.store.shared.object_store import Objects

Machine = Callable[[str], StoreConfig]


@pytest.fixture
def machine(s3: S3Server, tmp_path: Path) -> Machine:
    """Machines with folders of their own, over one root in S3."""
    root = s3.new_root()
    return lambda name: StoreConfig(root=root, s3_endpoint=s3.url, local_folder=tmp_path / name)


def share(config: StoreConfig, round_id: int, advantage: float) -> None:
    write_round_tokens(round_tokens_file(config.folder, round_id), [RoundCall(call_id="call", advantage=advantage)])
    share_round_tokens(config, round_id)


def advantage_of(config: StoreConfig, round_id: int) -> float | None:
    found = read_round_call(find_round_tokens(config, round_id), "call")
    return None if found is None else found.advantage


def test_another_file_of_the_round_that_is_newer_is_not_taken_for_its_tokens(machine: Machine, s3: S3Server) -> None:
    trained, page = machine("trained"), machine("page")
    share(trained, 1, 0.5)
    objects = Objects(str(trained.root), s3.url)
    for name in ("version.json", "tokens.parquet", "tokens-0a.parquet.part", "old-tokens-0a.parquet"):
        objects.put(f"rounds/00000001/{name}", b"{}")
    assert advantage_of(page, 1) == 0.5


def test_a_round_whose_folder_has_other_files_only_has_no_tokens(machine: Machine, s3: S3Server) -> None:
    page = machine("page")
    Objects(str(page.root), s3.url).put("rounds/00000002/version.json", b"{}")
    assert not find_round_tokens(page, 2).exists()
    assert advantage_of(page, 2) is None


def test_each_round_has_the_tokens_of_its_own_folder(machine: Machine) -> None:
    for round_id in (1, 2):
        share(machine("trained"), round_id, float(round_id))
    assert [advantage_of(machine("page"), round_id) for round_id in (1, 2)] == [1.0, 2.0]
