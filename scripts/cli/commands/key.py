"""`weir key add|list|revoke`: access keys for agents, for proxies that other machines can reach.

Invariant: a key is shown once, when it is made; the catalog has only its hash.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from weir.scripts.launch.settings import ConfigOption, RootOption, existing_store, load_settings

if TYPE_CHECKING:
    from weir.store.catalog.catalog import Catalog
    from weir.store.config import StoreConfig

NameArgument = Annotated[str, typer.Argument(help="Name of the key in the list.")]


def add(name: NameArgument, root: RootOption = None, config: ConfigOption = None) -> None:
    """Create a key for agents and print it; it cannot be shown again."""
    from weir.proxy.sessions.access_keys import new_access_key
    from weir.store.catalog.keys import add_access_key

    key = new_access_key()
    with _catalog(load_settings(config).store.at(root)) as catalog:  # may run before the first `weir up`
        add_access_key(catalog, name, key)
    print(key)


def list_(root: RootOption = None, config: ConfigOption = None) -> None:
    """List all keys, including revoked ones."""
    from weir.store.catalog.keys import access_keys

    with _catalog(existing_store(root, config)) as catalog:
        for row in access_keys(catalog):
            state = "good" if row.revoked_us is None else f"revoked {_time(row.revoked_us)}"
            print(f"{row.name}  made {_time(row.created_us)}  {state}")


def revoke(name: NameArgument, root: RootOption = None, config: ConfigOption = None) -> None:
    """Revoke a key; running proxies refuse it within a second."""
    from weir.store.catalog.keys import revoke_access_key

    with _catalog(existing_store(root, config)) as catalog:
        news = revoke_access_key(catalog, name)
    print(f"{name}: {'revoked' if news else 'was revoked before'}")


@contextmanager
def _catalog(store: StoreConfig) -> Iterator[Catalog]:
    from weir.store.catalog.catalog import Catalog

    catalog = Catalog.open(store)
    try:
        yield catalog
    finally:
        catalog.close()


def _time(unix_us: int) -> str:
    return datetime.fromtimestamp(unix_us / 1e6, UTC).isoformat(" ", "seconds")
