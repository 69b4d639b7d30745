"""The servers of the benchmarks, each a Python module on a port of this machine, with its log in the run's folder."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from weir.scripts.launch.servers import Server

COMMAND = "weir.scripts.cli.main"


def module_server(
    name: str,
    module: str,
    arguments: Sequence[str],
    *,
    port: int,
    folder: Path,
    ready: str = "/health",
    environment: Mapping[str, str] | None = None,
) -> Server:
    """`python -m module arguments…`, ready once `ready` answers 200 on the port.

    Its environment is ours with `environment` over it: nothing limits its threads, as `weir up` does.
    """
    return Server(
        name=name,
        argv=[sys.executable, "-m", module, *arguments],
        ready_url=f"http://127.0.0.1:{port}{ready}",
        log_path=folder / f"{name}.log",
        environment=environment or {},
    )


def proxy_server(
    name: str, model: Path, upstream_url: str, root: Path, *, port: int, folder: Path, environment: Mapping[str, str]
) -> Server:
    """The proxy over a store of its own, in front of a router."""
    flags = ["--model", str(model), "--upstream", upstream_url, "--port", str(port), "--root", str(root)]
    arguments = ["proxy", *flags]
    return module_server(name, COMMAND, arguments, port=port, folder=folder, ready="/readyz", environment=environment)
