"""What an action would do, told before it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import duckdb

from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig

NOTE_CHARACTERS = 2000

Given = Mapping[str, str]  # the fields of a form


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What plans are made from: a view of the store, when it was taken, and the catalog as it is now."""

    cursor: duckdb.DuckDBPyConnection
    taken_us: int
    catalog: Catalog
    store: StoreConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An action that may be done: `effects` are sentences for a person.

    `perform` does it and says what it did; it takes the action's id and the person's name, and the same id again
    changes nothing. `command`, for the action's id, are the arguments of the `weir` command that does it in its place.
    """

    subject: str
    title: str
    effects: tuple[str, ...]
    button: str
    given: Mapping[str, str]
    perform: Callable[[str, str], str] | None = None
    command: Callable[[str], Sequence[str]] | None = None
    exclusive: bool = False  # the command trains or publishes: one at a time
    details: str = ""  # what a command said of it
