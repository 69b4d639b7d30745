"""Where the page finds what rounds kept of tokens: on this machine, in S3, and where S3 does not answer."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path

import pytest
from support_s3 import ENVIRONMENT, S3Server

from weir.store.config import StoreConfig
from weir.store.parquet.round_tokens import (
    RoundCall,
    read_round_call,
    round_tokens_file,
    share_round_tokens,
    write_round_tokens,
)
from weir.ui import round_tokens
from weir.ui.round_tokens import THREADS, Found, RoundTokens


def asked(store: StoreConfig, *rounds: int) -> list[Found]:
    """What is found of each round, one after another."""

    async def ask() -> list[Found]:
        tokens = RoundTokens(store)
        try:
            return [await tokens.of(round_id) for round_id in rounds]
        finally:
            await tokens.close()

    return asyncio.run(ask())


def test_a_round_of_another_machine_is_fetched_and_one_without_a_file_is_asked_for_once(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_tokens, "WAIT_S", 600.0)
    trained, page = (
        StoreConfig(root=root, s3_endpoint=s3.url, local_folder=tmp_path / name)
        for root in [s3.new_root()]
        for name in ("trained", "page")
    )
    write_round_tokens(round_tokens_file(trained.folder, 1), [RoundCall(call_id="call", advantage=0.5)])
    share_round_tokens(trained, 1)

    async def look() -> tuple[Found, Found, Found]:
        tokens = RoundTokens(page)
        there, absent = await tokens.of(1), await tokens.of(2)
        monkeypatch.setattr(round_tokens, "find_round_tokens", None)  # it is not called again
        return there, absent, await tokens.of(2)

    there, absent, again = asyncio.run(look())
    assert there.path is not None and read_round_call(there.path, "call") == RoundCall(call_id="call", advantage=0.5)
    assert absent.path is not None and not absent.path.exists() and again.path == absent.path


def test_in_a_folder_nothing_is_asked(tmp_path: Path) -> None:
    store = StoreConfig(root=tmp_path)
    assert asked(store, 7) == [Found(round_tokens_file(tmp_path, 7))]


def test_storage_that_never_answers_holds_nobody_and_few_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_tokens, "WAIT_S", 0.05)
    for name, value in ENVIRONMENT.items():  # without credentials, storage is not asked at all
        monkeypatch.setenv(name, value)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and says nothing
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        store = StoreConfig(root="s3://bucket/run", s3_endpoint=endpoint, local_folder=tmp_path)

        async def look() -> tuple[list[Found], int]:
            tokens = RoundTokens(store)
            found = await asyncio.gather(*(tokens.of(round_id) for round_id in range(20)))
            working = [task for task in threading.enumerate() if task.name == "weir-ui-round-tokens"]
            await tokens.close()
            return found, len(working)

        found, num_threads = asyncio.run(look())
    assert all(one.path is None and "Load this page again" in one.note for one in found)
    assert 0 < num_threads <= THREADS


def test_storage_that_refuses_is_named_and_left_alone_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_tokens, "WAIT_S", 600.0)
    asks = []

    def refuse(store: StoreConfig, round_id: int) -> Path:
        asks.append(round_id)
        raise OSError("no route to storage")

    monkeypatch.setattr(round_tokens, "find_round_tokens", refuse)
    found = asked(StoreConfig(root="s3://bucket/run", local_folder=tmp_path), 3, 3)
    assert [one.note for one in found] == ["What the round kept of these tokens is not shown: no route to storage"] * 2
    assert asks == [3]
