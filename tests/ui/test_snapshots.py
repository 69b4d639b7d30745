"""Questions to one view of the store: who asks the same at the same time shares one answer."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import duckdb
import pytest

from weir.store.config import StoreConfig
from weir.ui.snapshots import Snapshots


class Question:
    """Counts how often it was asked, and answers once the test lets it."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = threading.Event()

    def __call__(self, cursor: duckdb.DuckDBPyConnection, number: int) -> list[Any]:
        """The number, as DuckDB gives it; a negative one is refused."""
        self.asked += 1
        assert self.may_answer.wait(60)
        if number < 0:
            raise ValueError(f"{number} is negative")
        return cursor.execute("SELECT $n", {"n": number}).fetchall()


def test_viewers_of_one_page_ask_the_store_once(tmp_path: Path) -> None:
    async def ask() -> None:
        snapshots = Snapshots(store=StoreConfig(root=tmp_path), tokenizer=None, refresh_s=60.0, threads=2)
        await snapshots.open()
        question = Question()
        viewers = [asyncio.create_task(snapshots.read(question, 7)) for _ in range(50)]
        other = asyncio.create_task(snapshots.read(question, 8))
        await asyncio.sleep(0)
        viewers[0].cancel()  # the one who asked first leaves
        question.may_answer.set()
        assert await asyncio.gather(*viewers[1:]) == [[(7,)]] * 49
        assert await other == [(8,)]
        assert question.asked == 2
        assert await snapshots.read(question, number=7) == [(7,)]
        assert question.asked == 3  # an answer is not kept
        await snapshots.close()

    asyncio.run(ask())


def test_all_who_asked_hear_why_it_failed(tmp_path: Path) -> None:
    async def ask() -> None:
        snapshots = Snapshots(store=StoreConfig(root=tmp_path), tokenizer=None, refresh_s=60.0, threads=2)
        await snapshots.open()
        question = Question()
        question.may_answer.set()
        heard = await asyncio.gather(*(snapshots.read(question, -1) for _ in range(3)), return_exceptions=True)
        assert [str(one) for one in heard] == ["-1 is negative"] * 3
        with pytest.raises(ValueError, match="-2 is negative"):
            await snapshots.read(question, -2)
        await snapshots.close()

    asyncio.run(ask())


def test_a_viewer_who_leaves_ends_no_other_viewers_wait(tmp_path: Path) -> None:
    async def follow() -> None:
        snapshots = Snapshots(store=StoreConfig(root=tmp_path), tokenizer=None, refresh_s=60.0, threads=2)
        await snapshots.open()
        counts = (0,)
        staying = [asyncio.create_task(snapshots.next_change((0,), 60, lambda: counts)) for _ in range(20)]
        leaving = [asyncio.create_task(snapshots.next_change((0,), 60, lambda: counts)) for _ in range(20)]
        for _ in range(200):  # passes of the loop: all wait
            await asyncio.sleep(0)
        while not all(task.done() for task in leaving):
            for task in leaving:
                task.cancel()  # in every pass of the loop, as anyio does until a task has ended
            await asyncio.sleep(0)
        later = [asyncio.create_task(snapshots.next_change((0,), 60, lambda: counts)) for _ in range(20)]
        for _ in range(200):
            await asyncio.sleep(0)
        counts = (1,)
        await snapshots._renew()
        assert await asyncio.gather(*staying, *later) == [(1,)] * 40
        await snapshots.close()

    asyncio.run(follow())
