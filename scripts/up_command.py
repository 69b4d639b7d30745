"""`weir up`: the servers of this machine, until it is interrupted."""

from __future__ import annotations

import signal
import subprocess
import threading

import typer

from weir.scripts.settings import ConfigOption, load_settings


def up(
    config: ConfigOption = None,
) -> None:
    """Start the servers that weir.toml names, until Ctrl-C.

    Engines, the router in front of them, the proxy and the kernel-evaluation server. Prints the base_url for agents.
    """
    from weir.scripts.fleet import fleet
    from weir.scripts.servers import running

    settings = load_settings(config)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    servers = fleet(settings, config)
    with running(servers) as processes:
        base = f"http://{settings.proxy.host}:{settings.proxy.port}"
        typer.echo(f"base_url     {base}/v1")
        typer.echo(f"control      {base}/weir (key: {settings.store.root / 'control.key'})")
        typer.echo(f"kernel-eval  http://{settings.kernel_eval.host}:{settings.kernel_eval.port}")
        typer.echo(f"logs         {settings.store.root / 'logs'}")
        typer.echo("Stop with Ctrl-C.")
        _wait(stop, dict(zip((server.name for server in servers), processes, strict=True)))


def _wait(stop: threading.Event, processes: dict[str, subprocess.Popen[bytes]]) -> None:
    """Until asked to stop; raises `ServerFailed` as soon as a server ends by itself."""
    from weir.scripts.errors import ServerFailed

    while not stop.wait(0.5):
        for name, process in processes.items():
            if process.poll() is not None:
                raise ServerFailed(
                    f"{name} ended with status {process.returncode}; the others were stopped, see its log"
                )
