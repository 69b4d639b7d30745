"""`weir ranks`: the training processes of a further machine."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.resolve import see_training_gpus
from weir.scripts.launch.settings import ConfigOption, load_settings


def ranks(
    node: Annotated[int, typer.Option(min=1, help="Number of this machine: 1, 2, …; `weir round` runs on 0.")],
    once: Annotated[bool, typer.Option("--once", help="End with the first machine's processes.")] = False,
    config: ConfigOption = None,
) -> None:
    """Run the training processes of a further machine.

    Waits at trainer.launch.rendezvous for `weir round` of the first machine, and again whenever that has ended. Runs
    until it is stopped.
    """
    from weir.trainer.launch.agent import run_node

    settings = load_settings(config)
    launch = settings.trainer.launch
    if launch.nodes == 1:
        raise UsageError("trainer.launch.nodes is 1: there are no further machines; set it, and its rendezvous")
    see_training_gpus(settings)
    with contextlib.suppress(KeyboardInterrupt):
        status = run_node(
            node,
            processes=settings.trainer.processes,
            launch=launch,
            device=settings.trainer.device,
            once=once,
            say=lambda text: print(f"node {node} {text}", flush=True),
        )
        raise typer.Exit(status)
