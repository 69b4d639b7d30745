"""The page as an ASGI application: its routes behind the guard, and every error as a page that says what to do.

The store is only read, but for what a person does with the control key. What the page shows comes from `snapshots.py`;
nothing is computed on the path of agents' calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response

from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.errors import QueryRefused, QueryStopped, StoreError
from weir.ui.config import UiConfig
from weir.ui.control.commands import Commands
from weir.ui.control.login import ControlKey, Logins
from weir.ui.errors import UiError
from weir.ui.other_stores import OtherStores
from weir.ui.round_tokens import RoundTokens
from weir.ui.servers import Addresses, Servers
from weir.ui.snapshots import Snapshots
from weir.ui.web.control import ControlRoutes
from weir.ui.web.guard import Guard
from weir.ui.web.rendering import Pages, as_json
from weir.ui.web.routes import Routes


def create_app(
    config: UiConfig,
    store: StoreConfig,
    tokenizer: Path | None,
    control_key: str | None = None,
    config_path: Path | None = None,
    addresses: Addresses = Addresses(),
    others: Sequence[StoreConfig] = (),
) -> Starlette:
    """The application; its lifespan opens the store, and `state.refused` is why it could not.

    `tokenizer` is a folder with tokenizer.json, for tokens' texts. Without a `control_key` it is the one in the proxy's
    file. Actions that are commands run with the weir.toml at `config_path`, else with the one in the working directory.
    `addresses` are those of servers whose state is shown, `others` are stores whose curves are.
    """
    name = str(store.root)
    snapshots = Snapshots(store=store, tokenizer=tokenizer, refresh_s=config.refresh_s, threads=config.threads)
    pages = Pages(name)
    catalog = Catalog.open(store)
    key = ControlKey(control_key, store.folder / "control.key")
    logins = Logins(key)
    round_tokens = RoundTokens(store)
    other_stores = OtherStores(others, config.refresh_s)
    servers = Servers(addresses, catalog, key.known, config.refresh_s)
    commands = Commands(catalog, store, config_path)
    control = ControlRoutes(snapshots, pages, catalog, logins, commands)
    views = Routes(snapshots, servers, other_stores, round_tokens, pages, tokenizer, name)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            await snapshots.open()
        except StoreError as error:
            app.state.refused = error
            raise
        async with contextlib.AsyncExitStack() as closing:
            closing.callback(catalog.close)
            for part in (snapshots, other_stores, round_tokens, servers, commands):
                closing.push_async_callback(part.close)
            yield

    kinds = (UiError, QueryRefused, QueryStopped, StoreError, HTTPException)
    app = Starlette(
        routes=[*control.routes(), *views.routes()],
        middleware=[
            Middleware(Guard, host=config.host, catalog=catalog),
            Middleware(GZipMiddleware, minimum_size=1024, compresslevel=4),
        ],
        exception_handlers=dict.fromkeys(kinds, _explainer(pages)),
        lifespan=lifespan,
    )
    app.state.refused = None
    return app


def _explainer(pages: Pages) -> Callable[[Request, Exception], Awaitable[Response]]:
    """What answers an error: a page, or JSON where that was asked for."""

    async def explain(request: Request, error: Exception) -> Response:
        status, message = _explained(error)
        if request.url.path.endswith(".json"):
            return as_json({"error": {"message": message}}, status)
        frame: dict[str, Any] = {"as_of": "", "seen": "", "stale": None, "path": request.url.path, "given": {}}
        return pages.page("error.html", frame | {"status": status, "message": message}, status)

    return explain


def _explained(error: Exception) -> tuple[int, str]:
    """Status and message of an error."""
    if isinstance(error, UiError):
        return error.status, str(error)
    if isinstance(error, QueryRefused):
        return 400, str(error)
    if isinstance(error, QueryStopped):
        return 503, str(error)
    if isinstance(error, HTTPException):
        return error.status_code, "there is no page at this address" if error.status_code == 404 else error.detail
    return 503, str(error)
