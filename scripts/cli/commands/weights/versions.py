"""`weir versions`: the weight versions of a store, listed, checked and written out."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weir.scripts.launch.errors import CommandError, UsageError
from weir.scripts.launch.settings import ConfigOption, RootOption, existing_store

if TYPE_CHECKING:
    from weir.store.config import StoreConfig
    from weir.trainer.versions.version_folder import Version

PLAIN_WIDTH = 240  # of a table that goes into a file or a pipe


def versions(context: typer.Context, root: RootOption = None, config: ConfigOption = None) -> None:
    """List weight versions, verify them, or export one.

    The list has the newest last, with its size on disk, whether it is stored whole or as the difference
    to another version, and the engines that confirmed it.
    """
    if context.invoked_subcommand is not None:
        return
    store = existing_store(root, config)
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.filesize import decimal
    from rich.table import Table

    from weir.store.catalog.catalog import Catalog
    from weir.trainer.versions.version_folder import list_versions

    catalog = Catalog.open(store)
    published = {row.version: row for row in catalog.versions()}
    catalog.close()
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("version", "parent", "round", "size"):
        table.add_column(name, justify="right")
    for name in ("stored", "made", "published", "engines", "folder"):
        table.add_column(name, overflow="fold")
    for version in list_versions(store.folder):
        manifest, row = version.manifest, published.get(version.manifest.version)
        engines = ", ".join((row.engines or []) if row else [])
        numbers = (str(manifest.version), _number(manifest.parent), _number(manifest.round))
        size = sum(file.stat().st_size for file in version.path.iterdir())
        times = (_time(manifest.created_us), _time(row.published_us if row else None))
        table.add_row(*numbers, decimal(size), _stored(version), *times, engines, str(version.path))
    Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH).print(table)


def export(
    version: Annotated[int, typer.Argument(help="Version to write out.")],
    folder: Annotated[Path, typer.Argument(help="Folder to make.")],
    adapter: Annotated[bool, typer.Option("--adapter", help="Write the adapter of a LoRA round, for peft.")] = False,
    root: RootOption = None,
    config: ConfigOption = None,
) -> None:
    """Write a version as a plain Hugging Face folder.

    It holds weights, configuration and tokenizer. A version that is stored as a difference is rebuilt and verified.
    With --adapter it holds the adapter alone, as peft writes it, and names its base.
    """
    store = existing_store(root, config)
    from weir.trainer.errors import VersionError
    from weir.trainer.versions.stored import make_whole, stored_entries
    from weir.trainer.versions.version_folder import MANIFEST, check_new, is_model_file, verify_files

    check_new(folder)
    found = _found(store, version)
    if adapter:
        from weir.trainer.model.adapter_file import FILES, read_published, write_peft

        verify_files(found.path, {name: entry for name, entry in found.manifest.files.items() if name in FILES})
        with _made(folder) as aside:
            try:
                write_peft(read_published(found.path), aside)
            except VersionError as error:
                raise UsageError(str(error)) from error
        typer.echo(f"the adapter of version {version} is in {folder}")
        return
    with _made(folder) as aside:
        for name in (*stored_entries(found.path, found.manifest), MANIFEST):
            if name == MANIFEST or is_model_file(name):
                shutil.copyfile(found.path / name, aside / name)
        make_whole(aside, siblings=found.path.parent)
        plain = {name: entry for name, entry in found.manifest.files.items() if (aside / name).exists()}
        verify_files(aside, plain)
        for file in aside.iterdir():
            if file.name not in plain:
                file.unlink()
    typer.echo(f"version {version} is in {folder}: {len(plain)} files")


def verify(
    version: Annotated[int | None, typer.Argument(help="Version to verify; default: all.")] = None,
    root: RootOption = None,
    config: ConfigOption = None,
) -> None:
    """Check that every version is what was written, or can be rebuilt to it.

    Its other forms, in float8 or as an adapter, are verified too. Names the damaged or missing file of each
    version that cannot. Changes nothing; exit status 1 where there is damage.
    """
    store = existing_store(root, config)
    from weir.store.version_forms import other_forms
    from weir.trainer.errors import VersionError
    from weir.trainer.versions.stored import verify_stored
    from weir.trainer.versions.version_folder import list_versions
    from weir.trainer.versions.version_folder import verify as verify_folder

    damaged = 0
    for found in list_versions(store.folder) if version is None else [_found(store, version)]:
        try:
            verify_stored(found.path)
            for form in other_forms(found.path):
                verify_folder(form)
        except VersionError as error:
            damaged += 1
            typer.echo(f"version {found.manifest.version}: {error}")
        else:
            typer.echo(f"version {found.manifest.version}: as it was written ({_stored(found)})")
    if damaged:
        raise typer.Exit(1)


@contextlib.contextmanager
def _made(folder: Path) -> Iterator[Path]:
    """An empty folder to fill, which then appears at `folder`. Raises `CommandError` where it cannot be written."""
    from weir.trainer.versions.folder_rename import folder_aside

    try:
        with folder_aside(folder) as aside:
            yield aside
    except OSError as error:
        raise CommandError(f"cannot write {folder}: {error}; make room there, or name another folder") from error


def _found(store: StoreConfig, number: int) -> Version:
    from weir.trainer.versions.object_store import fetch_version
    from weir.trainer.versions.version_folder import list_versions

    found = {version.manifest.version: version for version in list_versions(store.folder)}
    if number not in found:
        fetch_version(store, number)
        found = {version.manifest.version: version for version in list_versions(store.folder)}
    if number not in found:
        raise UsageError(f"there is no version {number}; there are: {', '.join(map(str, found)) or 'none'}")
    return found[number]


def _stored(version: Version) -> str:
    """How a version is stored."""
    from weir.trainer.versions.stored import lacking
    from weir.trainer.versions.version_folder import ADAPTER_BASE

    manifest = version.manifest
    if manifest.base is None:
        return "whole, adapter" if ADAPTER_BASE in manifest.files else "whole"
    delta = f"difference to {manifest.base}"
    return delta if lacking(version.path, manifest) else f"whole, {delta}"


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _time(at_us: int | None) -> str:
    return "" if at_us is None else f"{datetime.fromtimestamp(at_us / 1e6, UTC):%Y-%m-%d %H:%M:%S}"
