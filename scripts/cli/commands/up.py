"""`weir up`: runs the servers of this machine until it is interrupted."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.notices import notify
from weir.scripts.launch.settings import ConfigOption, Settings, load_settings

if TYPE_CHECKING:
    from weir.scripts.launch.servers import Server

MOST_ENDS, ENDS_WITHIN_S = 5, 120.0
STATE_TIMEOUT_S = 30.0


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

    Engines, the router in front of them, the proxy, the kernel-evaluation server and the page. Prints the base_url for
    agents; a server that ends is restarted.
    """
    from weir.scripts.launch.fleet import check_ports, fleet
    from weir.scripts.launch.servers import running
    from weir.scripts.launch.stop_signal import StopSignal
    from weir.store.catalog.catalog import Catalog

    if settings_only and not check:
        raise UsageError("--settings-only requires --check; without it the servers are started")
    settings = load_settings(config)
    if check:
        _check(settings, config, settings_only=settings_only)
        return
    servers = fleet(settings, config)
    check_ports(settings)
    Catalog.open(settings.store).close()  # the page opens a store that exists
    stop = StopSignal()  # also where a shell's background job ignores SIGINT; what a handler raises may be lost

    def pause(seconds: float) -> None:
        if stop.wait(seconds):
            raise KeyboardInterrupt  # what was started is stopped

    limit_s = settings.engine.start_limit_s
    with running(servers, ready_timeout_s=limit_s, on_wait=_say_wait, pause=pause) as processes:
        base = f"http://{settings.proxy.host}:{settings.proxy.port}"
        typer.echo(f"base_url     {base}/v1")
        typer.echo(f"control      {base}/weir (key: {settings.store.folder / 'control.key'})")
        for subject, fact in _rendering(settings, base).items():
            typer.echo(f"{subject:<12} {fact}")
        typer.echo(f"kernel-eval  http://{settings.kernel_eval.host}:{settings.kernel_eval.port}")
        if settings.ui.enabled:
            typer.echo(f"page         http://{settings.ui.host}:{settings.ui.port}")
        typer.echo(f"logs         {settings.store.folder / 'logs'}")
        typer.echo("Stop with Ctrl-C.")
        look_after(stop.wait, servers, processes)


def _rendering(settings: Settings, base: str) -> dict[str, str]:
    """What the proxy's renderer does with conversations, by subject; nothing below capture level tokens."""
    import httpx

    from weir.scripts.launch.resolve import control_key

    headers = {"authorization": f"Bearer {control_key(settings)}"}
    with httpx.Client(trust_env=False, timeout=STATE_TIMEOUT_S) as client:
        answer = client.get(f"{base}/weir/state", headers=headers)
    facts: dict[str, str] | None = answer.raise_for_status().json()["rendering"]
    return facts or {}


def _say_wait(server: Server) -> None:
    typer.echo(f"waiting for {server.name}, which writes {server.log_path}", err=True)


def _check(settings: Settings, config: Path | None, *, settings_only: bool) -> None:
    """Print every problem; exit with 1 where there is one."""
    from weir.scripts.launch.up_check import machine_problems, settings_problems

    problems = [*settings_problems(settings), *([] if settings_only else machine_problems(settings, config))]
    typer.echo("\n".join(problems) or f"{config.name if config else 'weir.toml'} can be started")
    if problems:
        raise typer.Exit(1)


def look_after(
    stop_asked: Callable[[float], bool], servers: list[Server], processes: list[subprocess.Popen[bytes]]
) -> None:
    """Restart servers that end, until `stop_asked`, which waits so many seconds at most, says so.

    A server that keeps ending is given up; for a vital one that raises ServerFailed. `processes` always holds the
    running ones, in the order of `servers`.
    """
    from weir.scripts.launch.errors import ServerFailed
    from weir.scripts.launch.servers import start

    ends: dict[str, list[float]] = {server.name: [] for server in servers}
    given_up: set[str] = set()
    while not stop_asked(0.5):
        for place, server in enumerate(servers):
            status = processes[place].poll()
            if status is None or server.name in given_up:
                continue
            now = time.monotonic()
            ends[server.name] = [*(end for end in ends[server.name] if end > now - ENDS_WITHIN_S), now]
            if len(ends[server.name]) >= MOST_ENDS:
                often = f"{server.name} ended {MOST_ENDS} times within {ENDS_WITHIN_S:g} s, last with status {status}"
                if server.is_vital:
                    raise ServerFailed(f"{often}; the others were stopped, see {server.log_path}")
                given_up.add(server.name)
                notify(f"{often}; the others go on without it, see {server.log_path}")
                continue
            notify(f"{server.name} ended with status {status} and is started again; its log: {server.log_path}")
            processes[place] = start(server)
