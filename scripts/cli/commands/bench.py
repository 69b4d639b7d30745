"""`weir bench …`: each benchmark measures a peer in the same run and prints one JSON object on its last line."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer


class Peer(enum.StrEnum):
    """What the proxy can be measured against."""

    LITELLM = "litellm"


def proxy(
    against: Annotated[Peer | None, typer.Option(help="A peer that gets the same load in the same run.")] = None,
    peer_env: Annotated[
        Path, typer.Option(help="Folder of the peer's own environment; it is made where there is none.")
    ] = Path(".litellm"),
) -> None:
    """CPU a call and added latency, against none in between.

    The same calls go through the proxy and straight to the router.
    """
    from weir.scripts.bench.proxy.run import main

    main(peer_env if against else None)


def gate(
    agents: Annotated[int, typer.Option(min=1, help="Agents with a call in flight.")] = 256,
    updates: Annotated[int, typer.Option(min=1, help="Weight updates under them.")] = 30,
    held: Annotated[int, typer.Option(min=1, help="Calls held at once afterwards.")] = 5000,
    hold_s: Annotated[float, typer.Option(min=0, help="How long they are held, in seconds.")] = 60.0,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes of the proxy.")] = 1,
) -> None:
    """Weight updates under agents: errors, tokens, holds, memory.

    Then thousands of calls held at once.
    """
    from weir.scripts.bench.gate.run import main

    main(agents, updates, held, hold_s, workers)


def engine() -> None:
    """Tokens per second, against a bare decode loop.

    Over the same model, in turn.
    """
    from weir.scripts.bench.engine.run import main

    main()


def store(
    num_calls: Annotated[int, typer.Option(min=640, help="Calls to append and compact.")] = 8000,
    queried: Annotated[int, typer.Option(min=640, help="Calls of the store that is asked in SQL.")] = 40_000,
    grow: Annotated[
        bool, typer.Option("--grow", help="Instead: the questions at 4,000, 40,000 and 400,000 short calls.")
    ] = False,
) -> None:
    """Appends, compaction, sizes and queries, beside its peers.

    Also queries while a proxy writes. Needs the extra `bench` for the comparison with Delta.
    """
    from weir.scripts.bench.store.run import main

    main(num_calls, queried, grow)


def trainer(
    peer_env: Annotated[
        Path, typer.Option(help="Folder of TRL's own environment; it is made where there is none.")
    ] = Path(".trl"),
) -> None:
    """Tokens per second of a loss and backward pass, against TRL's.

    And of trees of sequences, against the same sequences one by one.
    """
    from weir.scripts.bench.trainer.run import main

    main(peer_env)


def round_(rounds: Annotated[int, typer.Option(min=1, help="Rounds to measure.")] = 12) -> None:
    """What a round costs besides judging, training and loading.

    Rounds of the demo's size, with its servers, step by step.
    """
    from weir.scripts.bench.round.run import main

    main(rounds)


def kernel_eval(
    evaluations: Annotated[int, typer.Option(min=1, help="Evaluations to measure.")] = 200,
    trials: Annotated[int, typer.Option(min=1, help="Correctness trials of each.")] = 3,
    hostile: Annotated[int, typer.Option(min=0, help="Instead: that many candidates, most of them attacks.")] = 0,
    gpu: Annotated[bool, typer.Option("--gpu", help="Instead: how well kernels are timed on a GPU.")] = False,
) -> None:
    """CPU and latency of one evaluation of a small kernel.

    All processes counted together. With --hostile: what attacks do to the server and to their neighbours.
    """
    if gpu:
        from weir.scripts.bench.kernel_eval.gpu_timing import main as time_gpu

        return time_gpu()
    if hostile:
        from weir.scripts.bench.kernel_eval.hostile import main

        return main(hostile)
    from weir.scripts.bench.kernel_eval.run import bench_kernel_eval

    bench_kernel_eval(evaluations, trials)
