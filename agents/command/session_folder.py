"""The folder of one session: the agent's working folder and home, what its launcher reads, its bounded output.

Invariant: nothing here follows a symlink that an agent may have made. Files are read and written by descriptors of the
folders above them, and only regular files are read.

    SESSION/work/       the agent's working folder, with the task's files
    SESSION/home/       its home; prompt.txt
    SESSION/run/        the launcher's spec, the relay's socket; read-only for the agent
    SESSION/etc/        passwd, group and hosts, as the agent sees them
    SESSION/*.txt       what its commands printed
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from weir.agents.errors import TaskError

PROMPT = "prompt.txt"
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class SessionFolder:
    """The paths of one session. `uid`: the unnamed user that owns work and home, if it has one."""

    def __init__(self, path: Path, uid: int | None) -> None:
        self.path = path
        self.uid = uid
        self.work, self.home, self.run = path / "work", path / "home", path / "run"

    def make(self, prompt: str, *, inside_uid: int, inside_home: str) -> None:
        """Create the folders and the files beside the agent's own."""
        for folder in (self.work, self.home, self.run, self.path / "etc"):
            folder.mkdir(parents=True)
        (self.home / PROMPT).write_text(prompt)
        (self.path / "etc" / "passwd").write_text(
            f"root:x:0:0:root:/:/bin/sh\nagent:x:{inside_uid}:{inside_uid}:agent:{inside_home}:/bin/sh\n"
        )
        (self.path / "etc" / "group").write_text(f"root:x:0:\nagent:x:{inside_uid}:\n")
        (self.path / "etc" / "hosts").write_text("127.0.0.1 localhost agent\n::1 localhost\n")

    def give_away(self) -> None:
        """Give work and home to the session's user."""
        if self.uid is None:
            return
        for top in (self.work, self.home):
            os.chown(top, self.uid, self.uid)
            for _, folders, files, fd in os.fwalk(top):
                for name in (*folders, *files):
                    os.chown(name, self.uid, self.uid, dir_fd=fd, follow_symlinks=False)

    def usage(self) -> tuple[int, int]:
        """Bytes on disk, and the number of files, of work and home.

        Raises OSError for a folder that cannot be measured: too deep, or closed to its owner.
        """
        num_bytes = num_files = 0
        for entry in _entries([self.work, self.home]):
            with contextlib.suppress(FileNotFoundError):
                num_bytes += entry.stat(follow_symlinks=False).st_blocks * 512
            num_files += 1
        return num_bytes, num_files

    def remove_agents_files(self) -> None:
        """Remove everything but the outputs, also folders that the agent closed or nested deeply."""
        tops = [str(top) for top in (self.work, self.home, self.run, self.path / "etc")]
        if os.geteuid() != 0:
            subprocess.run(["chmod", "-R", "u+rwx", "--", *tops], capture_output=True)
        subprocess.run(["rm", "-rf", "--", *tops], capture_output=True)


def write_beneath(root: Path, name: str, content: bytes, uid: int | None = None) -> None:
    """Write a file below `root`; what stands in its way, such as a symlink, is removed. Raises `TaskError`."""
    *folders, last = _parts(name)
    fd = os.open(root, _FOLDER_FLAGS)
    try:
        for folder in folders:
            inner = _enter(fd, folder, uid)
            os.close(fd)
            fd = inner
        _remove(fd, last)
        file = os.open(last, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o755, dir_fd=fd)
        with open(file, "wb") as out:
            out.write(content)
            if uid is not None:
                os.fchown(file, uid, uid)
    finally:
        os.close(fd)


def read_beneath(root: Path, name: str, most_bytes: int) -> bytes | None:
    """The first `most_bytes` of a regular file below `root`; None where there is none. Raises `TaskError`."""
    *folders, last = _parts(name)
    fd = os.open(root, _FOLDER_FLAGS)
    try:
        for folder in folders:
            inner = os.open(folder, _FOLDER_FLAGS, dir_fd=fd)
            os.close(fd)
            fd = inner
        file = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd)
    except OSError:
        return None
    finally:
        os.close(fd)
    with open(file, "rb") as content:
        return content.read(most_bytes) if stat.S_ISREG(os.fstat(file).st_mode) else None


def remove_beneath(root: Path, name: str) -> None:
    """Remove a file, a folder or a symlink below `root`, if it is there. Raises `TaskError`."""
    *folders, last = _parts(name)
    fd = os.open(root, _FOLDER_FLAGS)
    try:
        for folder in folders:
            inner = os.open(folder, _FOLDER_FLAGS, dir_fd=fd)
            os.close(fd)
            fd = inner
        _remove(fd, last)
    except OSError:
        return
    finally:
        os.close(fd)


def _parts(name: str) -> tuple[str, ...]:
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or ".." in path.parts:
        raise TaskError(f"{name!r} is no path below the working folder; give a relative one without ..")
    return path.parts


def _enter(fd: int, folder: str, uid: int | None) -> int:
    """The folder's descriptor; it is made anew where something else has its name."""
    try:
        return os.open(folder, _FOLDER_FLAGS, dir_fd=fd)
    except OSError:
        _remove(fd, folder)
        os.mkdir(folder, 0o755, dir_fd=fd)
        if uid is not None:
            os.chown(folder, uid, uid, dir_fd=fd, follow_symlinks=False)
        return os.open(folder, _FOLDER_FLAGS, dir_fd=fd)


def _remove(fd: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
            shutil.rmtree(name, dir_fd=fd)
        else:
            os.unlink(name, dir_fd=fd)


def _entries(folders: list[Path]) -> Iterator[os.DirEntry[str]]:
    todo = [str(folder) for folder in folders]
    while todo:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(todo.pop()) as found:
            for entry in found:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
