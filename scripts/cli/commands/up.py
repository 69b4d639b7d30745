"""`weir up`: runs the servers of this machine until it is interrupted."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.settings import ConfigOption, Settings, load_settings

if TYPE_CHECKING:
    from weir.scripts.launch.servers import Server

MOST_ENDS, ENDS_WITHIN_S = 5, 120.0


def up(
    check: Annotated[
        bool, typer.Option("--check", help="Name what would keep them from starting; start none.")
    ] = False,
    settings_only: Annotated[
        bool, typer.Option("--settings-only", help="With --check: not whether this machine has what they need.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Start the servers of weir.toml, until Ctrl-C.

    Engines, the router in front of them, the proxy and the kernel-evaluation server. Prints the base_url for agents; a
    server that ends is restarted.
    """
    from weir.scripts.launch.fleet import check_ports, fleet
    from weir.scripts.launch.servers import running

    if settings_only and not check:
        raise UsageError("--settings-only requires --check; without it the servers are started")
    settings = load_settings(config)
    if check:
        _check(settings, config, settings_only=settings_only)
        return
    servers = fleet(settings, config)
    check_ports(settings)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what was started is stopped
    with running(servers, ready_timeout_s=settings.engine.start_limit_s, on_wait=_say_wait) as processes:
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        base = f"http://{settings.proxy.host}:{settings.proxy.port}"
        typer.echo(f"base_url     {base}/v1")
        typer.echo(f"control      {base}/weir (key: {settings.store.folder / 'control.key'})")
        typer.echo(f"kernel-eval  http://{settings.kernel_eval.host}:{settings.kernel_eval.port}")
        typer.echo(f"logs         {settings.store.folder / 'logs'}")
        typer.echo("Stop with Ctrl-C.")
        look_after(stop, servers, processes)


def _say_wait(server: Server) -> None:
    typer.echo(f"waiting for {server.name}, which writes {server.log_path}", err=True)


def _check(settings: Settings, config: Path | None, *, settings_only: bool) -> None:
    """Print every problem; exit with 1 where there is one."""
    from weir.scripts.launch.up_check import machine_problems, settings_problems

    problems = [*settings_problems(settings), *([] if settings_only else machine_problems(settings, config))]
    typer.echo("\n".join(problems) or f"{config.name if config else 'weir.toml'} can be started")
    if problems:
        raise typer.Exit(1)


def look_after(stop: threading.Event, servers: list[Server], processes: list[subprocess.Popen[bytes]]) -> None:
    """Restart servers that end, until asked to stop. Raises ServerFailed for a server that keeps ending.

    `processes` always holds the running ones, in the order of `servers`.
    """
    from weir.scripts.launch.errors import ServerFailed
    from weir.scripts.launch.servers import start

    ends: dict[str, list[float]] = {server.name: [] for server in servers}
    while not stop.wait(0.5):
        for place, server in enumerate(servers):
            status = processes[place].poll()
            if status is None:
                continue
            now = time.monotonic()
            ends[server.name] = [*(end for end in ends[server.name] if end > now - ENDS_WITHIN_S), now]
            if len(ends[server.name]) >= MOST_ENDS:
                raise ServerFailed(
                    f"{server.name} ended {MOST_ENDS} times within {ENDS_WITHIN_S:g} s, last with status {status}; "
                    f"the others were stopped, see {server.log_path}"
                )
            typer.echo(f"{server.name} ended with status {status} and is started again; its log: {server.log_path}")
            processes[place] = start(server)
