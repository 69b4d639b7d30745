"""A scripted engine behind the real router behind a proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support_proxy import running_proxy
from support_router import Router, running_router
from support_scripted_engine import Script, ScriptedEngine
from support_way import Way, ids_of


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ScriptedEngine, Router]]:
    """One scripted engine behind one sglang-router for all tests that do not kill them."""
    engine = ScriptedEngine(lambda _: Script(ids=ids_of("Hello."))).start()
    with running_router([engine.url], tmp_path_factory.mktemp("router")) as router:
        yield engine, router
    engine.stop()


@pytest.fixture
def open_way(
    scripted: tuple[ScriptedEngine, Router], tiny_model_dir: Path, tmp_path: Path
) -> Iterator[Callable[..., Way]]:
    """`open_way(store=None, **proxy_settings)`: a proxy of its own over a store of its own."""
    engine, router = scripted
    engine.forget()
    opened: list[Any] = []

    def start(**settings: Any) -> Way:
        context = running_proxy(tmp_path / f"store{len(opened)}", tiny_model_dir, router.url, **settings)
        opened.append(context)
        return Way(engine=engine, router=router, proxy=context.__enter__())

    yield start
    for context in reversed(opened):
        context.__exit__(None, None, None)


@pytest.fixture
def way(open_way: Callable[..., Way]) -> Way:
    """A proxy with default settings."""
    return open_way()
