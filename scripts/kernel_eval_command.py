"""`weir kernel-eval`: the kernel-evaluation server, until it is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def kernel_eval(
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Evaluations at a time.")] = None,
    min_sandbox: Annotated[
        str | None, typer.Option(help="Refuse to start below: rlimits, landlock, bubblewrap.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="The weir.toml to read.")] = None,
) -> None:
    """Judge kernels: POST /eval, GET /health, GET /metrics."""
    from weir.kernel_eval.config import KernelEvalConfig
    from weir.kernel_eval.serve import serve
    from weir.scripts.settings import load_settings

    given = {"port": port, "host": host, "concurrency": concurrency, "min_sandbox": min_sandbox}
    chosen = {name: value for name, value in given.items() if value is not None}
    settings = load_settings(config).kernel_eval
    serve(KernelEvalConfig.model_validate({**settings.model_dump(), **chosen}))
