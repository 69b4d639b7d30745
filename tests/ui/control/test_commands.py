"""Commands of actions: their output and their end are in the audit, and none outlives its server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from weir.store.catalog.audit.actions import Action, Asked, begin_action, find_action
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.ui.control import commands
from weir.ui.control.commands import Commands
from weir.ui.errors import Unavailable

PRINT = "import sys, os; print(os.environ['WEIR_STORE__ROOT'], *sys.argv[1:], flush=True); "
WAIT = PRINT + "import time; time.sleep(600)"


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    return StoreConfig(root=tmp_path / "store")


@asynccontextmanager
async def running(config: StoreConfig) -> AsyncIterator[Commands]:
    catalog = Catalog.open(config)
    opened = Commands(catalog, config, None)
    yield opened
    await opened.close()
    catalog.close()


def begun(opened: Commands, action_id: str) -> str:
    asked = Asked(action_id=action_id, kind="round", subject="x", given={}, note="", person="", address="")
    assert begin_action(opened.catalog, asked)
    return action_id


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(2400):
        if holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not come within two minutes")


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 300))  # type: ignore[arg-type]


def found(opened: Commands, action_id: str) -> Action:
    row = find_action(opened.catalog, action_id)
    assert row is not None
    return row


@pytest.mark.parametrize(("status", "outcome"), [(0, "done"), (3, "failed")])
def test_output_and_exit_status_are_in_the_audit(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch, status: int, outcome: str
) -> None:
    monkeypatch.setattr(commands, "WEIR", (sys.executable, "-c", PRINT + f"print('x' * 20_000); sys.exit({status})"))

    async def test() -> None:
        async with running(config) as opened:
            await opened.start(begun(opened, "a"), ["round", "--flag"], exclusive=True)
            await until(lambda: found(opened, "a").outcome is not None)
            row = found(opened, "a")
            assert row.outcome == outcome and row.message is not None
            assert row.message.count("x") >= 15_900 and len(row.message) < 17_000, "the last of it"
            assert ("exit status 3" in row.message) == (status == 3)
            assert opened.output_of("a") is None

    run(test)


def test_one_that_trains_or_publishes_runs_at_a_time_and_ends_with_the_server(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "WEIR", (sys.executable, "-c", WAIT))

    async def test() -> None:
        others = set(psutil.Process().children())  # of other tests in this process
        async with running(config) as opened:
            await opened.start(begun(opened, "a"), ["round"], exclusive=True)
            await until(lambda: opened.output_of("a") == f"{config.root} round\n")
            with pytest.raises(Unavailable, match="trains or publishes is running"):
                await opened.start(begun(opened, "b"), ["publish"], exclusive=True)
            for name in ("c", "d", "e"):
                await opened.start(begun(opened, name), ["export"], exclusive=False)
            with pytest.raises(Unavailable, match="4 commands"):
                opened.require_free(exclusive=False)
            children = set(psutil.Process().children()) - others
            assert len(children) == 4
            await opened.close()
            row = found(opened, "a")
            assert row.outcome == "failed" and "stopped" in (row.message or "")
            assert not any(child.is_running() and "sleep(600)" in str(child.cmdline()) for child in children)

    run(test)


def test_a_question_that_takes_too_long_is_stopped(config: StoreConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "WEIR", (sys.executable, "-c", WAIT))

    async def test() -> None:
        async with running(config) as opened:
            others = set(psutil.Process().children())  # of other tests in this process
            with pytest.raises(Unavailable, match=r"`weir round --dry-run` has not ended in 0\.5 s"):
                await opened.ask(["round", "--dry-run"], 0.5)
            assert set(psutil.Process().children()) <= others

    run(test)
