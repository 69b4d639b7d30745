"""A model folder that `weir model get` writes: made aside, and renamed when it is complete.

Invariant: a folder that holds `weir_source.json` was complete when it got its name; the file lists the hash of every
other file. Only one process at a time makes a folder. What an interrupted get left stays in the folder aside, where the
next get of the same source continues.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from weir.scripts.launch.errors import CommandError, UsageError
from weir.store.atomic_file import fsync, written_aside

RECORD = "weir_source.json"
MADE = "model"  # the model folder itself, in the folder aside

Make = Callable[[Path], Mapping[str, str]]  # fills a folder; returns the hashes that are known of files in it


class GetFailed(CommandError):
    """A model could not be fetched or converted; the message says at which step and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a folder is made from: the name that the user gave, and the revision or hash that it stands for."""

    name: str
    revision: str


def model_folder(folder: Path, source: Source, make: Make, say: Callable[[str], None]) -> bool:
    """Have `make` fill a model folder, unless `folder` has that source already; whether it was made.

    `make` finds what an earlier, interrupted call left. Its hidden files and folders are deleted at the end. Raises
    UsageError for a folder of something else and for one that was changed, and GetFailed for a file of another hash
    and where the finished folder cannot be renamed.
    """
    folder = folder.absolute()
    require_place(folder)
    with _turn(folder, say):
        if (folder / RECORD).exists():
            verify(folder, source)
            return False
        require_empty(folder)
        aside = folder.with_name(f".{folder.name}.part")
        _start(aside, source)
        out = aside / MADE
        out.mkdir(exist_ok=True)
        known = make(out)
        say("computing the files' hashes")
        _write_record(out, source, known)
        _rename(out, folder)
        shutil.rmtree(aside)
    return True


def require_place(folder: Path) -> None:
    """Make the folders above a folder that is to be made. Raises UsageError where one of them cannot be."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {folder.parent}: {error.strerror}; name another place") from error
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"cannot make {folder}: it is a file; name another place")


def require_empty(folder: Path) -> None:
    """Raise UsageError where a folder holds files that `weir model get` did not put there."""
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(
            f"{folder} is not empty, and `weir model get` did not make it: nothing was changed; name another folder"
        )


def recorded(folder: Path) -> dict[str, object]:
    """What `weir_source.json` of a folder says. Raises UsageError where it cannot be read."""
    try:
        found: dict[str, object] = json.loads((folder / RECORD).read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder / RECORD} cannot be read ({error}): delete {folder} and get it again") from error
    return found


def verify(folder: Path, source: Source) -> None:
    """Raise UsageError where a folder was made from another source, or differs from what was written."""
    found = recorded(folder)
    named = f"{found.get('source')} at {found.get('revision')}"
    if (found.get("source"), found.get("revision")) != (source.name, source.revision):
        raise UsageError(
            f"{folder} holds {named}, not {source.name} at {source.revision}: nothing was changed; name another folder"
        )
    files = found.get("files")
    changed = [
        name for name, was in dict(files if isinstance(files, dict) else {}).items() if digest(folder / name) != was
    ]
    if changed or not files:
        raise UsageError(
            f"{folder} is not what `weir model get` wrote ({', '.join(changed) or 'its record'} changed): "
            "delete it and get it again, or name another folder"
        )


def digest(file: Path) -> str | None:
    """The SHA-256 of a file in hexadecimal; None where there is no such file."""
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def _start(aside: Path, source: Source) -> None:
    """The folder aside; what another source left in it is deleted."""
    mark = aside / "source"
    said = f"{source.name}\n{source.revision}\n"
    if aside.exists() and not (mark.is_file() and mark.read_text() == said):
        shutil.rmtree(aside)
    aside.mkdir(exist_ok=True)
    with written_aside(mark) as new:
        new.write_text(said)


def _write_record(folder: Path, source: Source, known: Mapping[str, str]) -> None:
    shown = [path for path in sorted(folder.rglob("*")) if not _is_hidden(path.relative_to(folder))]
    files = {str(path.relative_to(folder)): digest(path) for path in shown if path.is_file() and path.name != RECORD}
    for name, expected in known.items():
        if files.get(name) != expected:
            (folder / name).unlink(missing_ok=True)
            raise GetFailed(
                f"{name} arrived damaged (its SHA-256 is not {expected}) and was deleted: run the same again"
            )
    record = {"source": source.name, "revision": source.revision, "files": files}
    for name in files:
        fsync(folder / name)
    with written_aside(folder / RECORD, durable=True) as new:
        new.write_text(json.dumps(record, indent=2) + "\n")
    for path in folder.iterdir():
        if _is_hidden(path.relative_to(folder)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _rename(made: Path, folder: Path) -> None:
    try:
        made.rename(folder)
    except OSError as error:
        raise GetFailed(
            f"the finished model {made} cannot be renamed to {folder} ({error.strerror}); if that is a mounted folder, "
            "name a folder inside it"
        ) from error
    fsync(folder.parent)


@contextlib.contextmanager
def _turn(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """One process at a time for a folder. The lock file stays: deleting it would let two processes hold a lock each."""
    with folder.with_name(f".{folder.name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that makes {folder}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
