"""`weir bench …`: each benchmark measures a peer in the same run and prints one JSON object on its last line."""

from __future__ import annotations

from typing import Annotated

import typer


def proxy() -> None:
    """CPU per call and added latency of the proxy, against the same calls sent straight to the router."""
    from weir.scripts.bench_proxy import main

    main()


def engine() -> None:
    """Tokens per second of the embedded engine, against a bare decode loop over the same model."""
    from weir.scripts.bench_engine import main

    main()


def store(
    num_calls: Annotated[int, typer.Option(min=640, help="Calls to append, compact and query.")] = 8000,
) -> None:
    """Appends, compaction, bytes per token and queries, against the disk's own limit."""
    from weir.scripts.bench_store import main

    main(num_calls)


def kernel_eval(
    evaluations: Annotated[int, typer.Option(min=1, help="Evaluations to measure.")] = 200,
    trials: Annotated[int, typer.Option(min=1, help="Correctness trials of each.")] = 3,
) -> None:
    """CPU and latency of one evaluation of a small kernel, all processes counted together."""
    from weir.scripts.bench_kernel_eval import bench_kernel_eval

    bench_kernel_eval(evaluations, trials)
