"""Fixtures that tests of several parts share: a tiny model, engines as real processes, a free port."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support_model import make_tiny_model
from support_servers import EngineFactory, ServerProcess, find_free_port, start_engine


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a random Qwen3 with 512 tokens; nobody writes to it."""
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny", vocab_size=512, seed=0)


@pytest.fixture
def free_port() -> int:
    """A port of the loopback that nobody listens on now."""
    return find_free_port()


@pytest.fixture
def engine_server(tmp_path: Path, tiny_model_dir: Path) -> Iterator[EngineFactory]:
    """`engine_server(model=None, *arguments, env=None)` starts the embedded engine; all are stopped after the test."""
    started: list[ServerProcess] = []

    def start(model: Path | str | None = None, *arguments: str, env: dict[str, str] | None = None) -> ServerProcess:
        server = start_engine(model or tiny_model_dir, folder=tmp_path, arguments=arguments, env=env)
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()
