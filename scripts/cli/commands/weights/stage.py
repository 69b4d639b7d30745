"""`weir stage`: the helper beside an engine that brings it every new version."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Annotated

import typer

from weir.scripts.launch.notices import notify
from weir.scripts.launch.settings import ConfigOption, RootOption, load_settings


def stage(
    folder: Annotated[Path, typer.Argument(help="Folder for the staged versions, for example in /dev/shm.")],
    engine: Annotated[str, typer.Option(help="URL of the engine, which reads that folder.")],
    every: Annotated[float, typer.Option(min=0.05, help="Seconds between two looks at the store.")] = 2.0,
    serve: Annotated[
        str | None, typer.Option(help="This helper's own URL, http://HOST:PORT, at which others get versions.")
    ] = None,
    peer: Annotated[
        list[str] | None, typer.Option(help="URL of a helper; repeat it for all, in one order everywhere.")
    ] = None,
    root: RootOption = None,
    config: ConfigOption = None,
) -> None:
    """Keep an engine on the newest version of a store.

    Fetches each new version, or only what changed since the last one, verifies it, and has the engine load it.
    An engine that starts again gets the newest version. Runs until it is stopped.
    With --serve and --peer the helpers pass versions on to each other, and the store is read once for all.
    """
    settings = load_settings(config)
    from weir.trainer.publishing.stage import Stage

    staging = Stage(
        settings.store.at(root),
        folder,
        engine,
        load_timeout_s=settings.trainer.publish_timeout_s,
        say=notify,
        serve=serve,
        peers=peer or (),
    )
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(staging.run(every))
    finally:
        staging.close()
