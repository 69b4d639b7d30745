"""The servers to start for a run's settings, and the command line of each.

Engines, then the router in front of them, then the proxy, the kernel-evaluation server, the compactor and the page.
Nothing is started here: `servers.running` does that with what this returns.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from weir.engine.config import EngineConfig
from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.placement import check_cores, check_placement, num_gpus, of_engine, visible
from weir.scripts.launch.port_row import USUAL_ROW, row_length
from weir.scripts.launch.ports import is_taken
from weir.scripts.launch.servers import Server, free_ports_in_row
from weir.scripts.launch.settings import RouterConfig, Settings
from weir.scripts.launch.sglang_engines import sglang_servers
from weir.store.version_forms import loaded_by_engines
from weir.trainer.versions.object_store import fetch_newest
from weir.trainer.versions.version_folder import MANIFEST, current_version, read_manifest
from weir.ui.servers import Addresses


def fleet(settings: Settings, config_path: Path | None) -> list[Server]:
    """Every server of the run, in the order in which they are to be started.

    Raises `UsageError` when there is no model to serve.
    """
    logs = settings.store.folder / "logs"
    config = ["--config", str(config_path)] if config_path else []
    there = num_gpus()
    check_placement(settings.placement, settings.engine.count, there)
    return [
        *(engines_and_router(settings, config, logs) if needs_router(settings) else []),
        weir_server("proxy", ["proxy", *config], _ready_url(settings), logs),
        weir_server(
            "kernel-eval",
            ["kernel-eval", *config],
            f"http://{settings.kernel_eval.host}:{settings.kernel_eval.port}/health",
            logs,
            visible(settings.placement.judge, there),
        ),
        _compactor(settings, config, logs),
        *([_page(settings, config, logs)] if settings.ui.enabled else []),
    ]


def _ready_url(settings: Settings) -> str:
    """What answers 200 once the proxy is ready; without an engine, where `weir train` is to start them all."""
    waits = bool(engine_urls(settings)) or not needs_router(settings)
    return f"http://{settings.proxy.host}:{settings.proxy.port}/{'readyz' if waits else 'healthz'}"


def check_ports(settings: Settings) -> None:
    """Raise `UsageError` that names every setting whose port another process has."""
    taken = [f"{setting} ({host}:{port})" for setting, host, port in listening_ports(settings) if is_taken(host, port)]
    if taken:
        raise UsageError(
            f"another process has the port of {', '.join(taken)}: if that is another `weir up`, stop it, else set "
            f"other ports in weir.toml; placement.first_port = {_free_row(settings)} moves all others"
        )


def _free_row(settings: Settings) -> int:
    """The first of as many free ports in a row as the run needs."""
    return free_ports_in_row(row_length(settings.engine.count), wanted=USUAL_ROW)


def listening_ports(settings: Settings) -> Iterator[tuple[str, str, int]]:
    """Where the servers of the run are to listen, by the settings that say it."""
    engine, router = settings.engine, settings.router
    for number in range(engine.count):
        yield f"engine.port{f' + {number}' if number else ''}", engine.host, engine.port + number
    if needs_router(settings):
        yield "router.port", router.host, router.port
        yield "router.prometheus_port", router.host, router.prometheus_port
    yield "proxy.port", settings.proxy.host, settings.proxy.port
    yield "kernel_eval.port", settings.kernel_eval.host, settings.kernel_eval.port
    if settings.ui.enabled:
        yield "ui.port", settings.ui.host, settings.ui.port


def _compactor(settings: Settings, config: list[str], logs: Path) -> Server:
    every = ["--every", str(settings.store.compact_every_s)]
    return weir_server("compactor", ["store", "compact", *every, *config], None, logs)


def _page(settings: Settings, config: list[str], logs: Path) -> Server:
    return dataclasses.replace(weir_server("ui", ["ui", *config], None, logs), is_vital=False)


def engines_and_router(settings: Settings, config: list[str], logs: Path) -> list[Server]:
    """The engines of this machine, and the router in front of them and of those that run elsewhere."""
    router = router_server(settings.router, engine_urls(settings), logs, sticky=settings.engine.kind == "sglang")
    return [*engine_servers(settings, config, logs), router] if settings.engine.count else [router]


def served_model(settings: Settings) -> Path:
    """The folder that engines load: the newest published version, else `[model] path`.

    Raises `UsageError` if there is neither.
    """
    folder = found_model(settings)
    if folder is None:
        raise UsageError(
            "no model to serve: [model] path is not set and the store has no published version; "
            "set it in weir.toml to a Hugging Face folder, or run `weir demo` to make a small one"
        )
    return folder


def found_model(settings: Settings) -> Path | None:
    """The newest published version, else `[model] path`; None where there is neither."""
    fetch_newest(settings.store)
    version = current_version(settings.store.folder)
    return version.path if version else settings.model.path


def engine_urls(settings: Settings) -> list[str]:
    """The engines of the run: those of this machine, `count` ports in a row, and those that run elsewhere."""
    return [*own_engine_urls(settings), *(url.rstrip("/") for url in settings.engine.urls)]


def needs_router(settings: Settings) -> bool:
    """Whether engines are there, or `weir train` will start some, whose calls a router is to spread."""
    return bool(engine_urls(settings)) or any(member.is_placed for member in settings.cluster.members)


def server_addresses(settings: Settings) -> Addresses:
    """The servers whose state the page shows: engines that rounds publish to, and the judge of this run."""
    judge = settings.trainer.kernel_eval_url if _is_set(settings, "kernel_eval_url") else settings.kernel_eval.base_url
    named = settings.trainer.engine_urls if _is_set(settings, "engine_urls") else engine_urls(settings)
    return Addresses(engines=tuple(named), judge=judge)


def _is_set(settings: Settings, name: str) -> bool:
    return name in settings.trainer.model_fields_set


def own_engine_urls(settings: Settings) -> list[str]:
    """Where the engines of this machine listen: `count` ports in a row."""
    return [f"http://{settings.engine.host}:{settings.engine.port + i}" for i in range(settings.engine.count)]


def engine_servers(settings: Settings, config: list[str], logs: Path, model: Path | None = None) -> list[Server]:
    """The engines of this machine: each has its own port and seed. `model`: other weights than the newest."""
    model, engine = model or loaded_by_engines(served_model(settings)), settings.engine
    if engine.kind == "sglang":
        return sglang_servers(
            engine,
            own_engine_urls(settings),
            model=model.absolute(),
            name=settings.model.name,
            version=_first_version(model, engine),
            renders=settings.proxy.level != "tokens",
            logs=logs,
            placement=settings.placement,
        )
    servers, there = [], num_gpus()
    for number, url in enumerate(own_engine_urls(settings)):
        flags = ["engine", "--model", str(model), "--port", str(engine.port + number), "--host", engine.host]
        flags += [*config, "--seed", str(engine.seed + number)]
        if engine.ledger is not None:
            flags += ["--ledger", f"{engine.ledger}.{number}" if engine.count > 1 else str(engine.ledger)]
        gpus = visible(of_engine(settings.placement, number, engine.count), there)
        server = weir_server(f"engine-{number}", flags, f"{url}/health", logs, gpus)
        servers.append(dataclasses.replace(server, cores=_cores(settings, url)))
    return servers


def _cores(settings: Settings, url: str) -> tuple[int, ...]:
    """The cores that the member with this engine is bound to."""
    for member in settings.cluster.members:
        if (member.url or "").rstrip("/") == url:
            check_cores(member.name, member.cores)
            return member.cores
    return ()


def _first_version(model: Path, engine: EngineConfig) -> str:
    """The version of the weights that engines start with: that of the settings, else the manifest's, else 0."""
    return engine.weight_version or (str(read_manifest(model).version) if (model / MANIFEST).exists() else "0")


# Started as modules: both packages install a script `smg`, and the one that was installed last has it.
ROUTER_MODULES = {"sglang-router": "sglang_router", "smg": "smg"}


def router_server(config: RouterConfig, workers: list[str], logs: Path, *, sticky: bool = False) -> Server:
    """The router, without retries and breaker: the proxy owns retries.

    `sticky`: unless the settings name a policy, the calls of a session go to one engine, which has their prefix in its
    cache. Raises `UsageError` if the router is not installed.
    """
    module = ROUTER_MODULES[config.kind]
    if importlib.util.find_spec(module) is None:
        raise UsageError(
            f"router.kind = {config.kind!r}, but {sys.executable} does not have it: "
            f"install the package {config.kind} there"
        )
    policy = config.policy or ("manual" if sticky else "round_robin")
    argv = [sys.executable, "-m", module, "launch", "--worker-urls", *workers, "--policy", policy]
    argv += ["--assignment-mode", "min_load"] if policy == "manual" else []
    argv += ["--host", config.host, "--port", str(config.port), "--prometheus-port", str(config.prometheus_port)]
    argv += ["--prometheus-host", config.host, "--disable-retries", "--disable-circuit-breaker"]
    argv += ["--disable-health-check", "--log-level", "warn"]
    url = f"http://{config.host}:{config.port}/health"
    return Server(name=config.kind, argv=argv, ready_url=url, log_path=logs / f"{config.kind}.log")


def weir_server(
    name: str, arguments: list[str], ready_url: str | None, logs: Path, more: Mapping[str, str] = MappingProxyType({})
) -> Server:
    """A server that is a `weir` command of its own; `more` are variables of its environment."""
    return Server(
        name=name,
        argv=[sys.executable, "-m", "weir.scripts.cli.main", *arguments],
        ready_url=ready_url,
        log_path=logs / f"{name}.log",
        environment={"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1", **more},
    )
