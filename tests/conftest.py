"""Fixtures that tests of several parts share: a tiny model, engines as real processes, a free port."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from support_model import make_tiny_model
from support_postgres import Postgres, running_postgres
from support_run import FailuresAtOnce, TimeLimit, in_order
from support_s3 import ENVIRONMENT, S3Server, running_s3
from support_servers import EngineFactory, ServerProcess, find_free_port, start_engine
from support_smollm2 import cached_smollm2


def pytest_addoption(parser: pytest.Parser) -> None:
    help = "skip the tests that have not begun after so many seconds, and say which"
    parser.addoption("--begin-within", type=float, metavar="SECONDS", help=help)


def pytest_configure(config: pytest.Config) -> None:
    limit_s = config.getoption("--begin-within")
    if limit_s is not None:
        config.pluginmanager.register(TimeLimit(limit_s))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailuresAtOnce(config))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = in_order(items)


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a random Qwen3 with 512 tokens; nobody writes to it."""
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny", vocab_size=512, seed=0)


@pytest.fixture(scope="session")
def smollm2_dir() -> Path:
    """The folder of SmolLM2-135M-Instruct in bfloat16: a real language model; nobody writes to it."""
    return cached_smollm2()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL of our own; its databases are made by `postgres_url`."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    """The URL of an empty PostgreSQL database."""
    name = f"weir_{uuid.uuid4().hex}"
    postgres.execute(f"CREATE DATABASE {name} STRATEGY file_copy")
    yield postgres.url(name)
    postgres.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 server of our own."""
    with running_s3() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The S3 server, with the credentials for it in the environment."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return s3_server


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
