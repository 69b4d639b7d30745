"""Single servers, run until stopped: `weir proxy`, in front of a running router, `weir kernel-eval` and `weir ui`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.settings import (
    ConfigOption,
    RootOption,
    check_several,
    existing_store,
    load_settings,
    with_flags,
)


def kernel_eval(
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Concurrent evaluations.")] = None,
    min_sandbox: Annotated[
        str | None, typer.Option(help="Weakest sandbox to start with: rlimits, landlock, bubblewrap.")
    ] = None,
    ray: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Judge on the machines of a Ray cluster.")] = None,
    config: ConfigOption = None,
) -> None:
    """Judge kernels: POST /eval, GET /health, GET /metrics."""
    from weir.kernel_eval.server.main import serve

    given = {"port": port, "host": host, "concurrency": concurrency, "min_sandbox": min_sandbox, "ray": ray}
    serve(with_flags(load_settings(config).kernel_eval, given, "weir kernel-eval"))


def proxy(
    config: ConfigOption = None,
    model: Annotated[Path | None, typer.Option(help="Hugging Face folder, for tokenizer and configuration.")] = None,
    name: Annotated[str | None, typer.Option(help="The model's name in agents' requests.")] = None,
    upstream: Annotated[str | None, typer.Option(help="URL of the router in front of the engines.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that share the port.")] = None,
    level: Annotated[str | None, typer.Option(help="tokens, passthrough, logprobs, text, or auto.")] = None,
    root: RootOption = None,
) -> None:
    """Serve agents, and record every call token for token."""
    from weir.proxy.supervisor import run
    from weir.scripts.launch.fleet import found_model, served_model

    settings = load_settings(config)
    flags = {"host": host, "port": port, "workers": workers, "level": level}
    proxy_config = with_flags(settings.proxy, flags, "weir proxy")
    router = settings.router
    run(
        proxy_config,
        settings.store.at(root),
        model_path=model or (served_model(settings) if proxy_config.level == "tokens" else found_model(settings)),
        model_name=name or settings.model.name,
        upstream_url=upstream or proxy_config.upstream_url or f"http://{router.host}:{router.port}",
    )


def page(
    stores: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STORE]…",
            help="The store to show, and others whose curves stand over its own; default: store.root and ui.stores.",
        ),
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Folder of the tokenizer for texts of tokens; default: model.path of weir.toml.")
    ] = None,
    root: RootOption = None,
    config: ConfigOption = None,
) -> None:
    """Show the store in a browser, while it grows.

    Curves, sessions, tokens and SQL; with the control key, rewards, exports and rounds. `weir up` serves it too.
    """
    from weir.scripts.launch.fleet import server_addresses
    from weir.ui.main import serve

    settings = load_settings(config)
    first, more = (stores[0], stores[1:]) if stores else (None, [])
    if first and root:
        raise UsageError(f"two stores to show, {first} and --root {root}: name one, or both without --root")
    given = with_flags(settings.ui, {"port": port, "host": host}, "weir ui")
    store = existing_store(root or first, config)
    others = [existing_store(other, config) for other in (more if stores else settings.ui.stores)]
    check_several([store, *others])
    serve(
        given,
        store,
        tokenizer or settings.model.path,
        settings.proxy.control_key,
        config,
        server_addresses(settings),
        others,
    )
