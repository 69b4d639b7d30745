"""`weir kernel-eval`: the kernel-evaluation server, until it is stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from weir.scripts.settings import ConfigOption, load_settings, with_flags


def kernel_eval(
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Evaluations at a time.")] = None,
    min_sandbox: Annotated[
        str | None, typer.Option(help="Refuse to start below: rlimits, landlock, bubblewrap.")
    ] = None,
    ray: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Judge on the machines of a Ray cluster.")] = None,
    config: ConfigOption = None,
) -> None:
    """Judge kernels: POST /eval, GET /health, GET /metrics."""
    from weir.kernel_eval.serve import serve

    given = {"port": port, "host": host, "concurrency": concurrency, "min_sandbox": min_sandbox, "ray": ray}
    serve(with_flags(load_settings(config).kernel_eval, given, "weir kernel-eval"))
