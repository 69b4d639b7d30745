"""A disk that fails: it refuses operations, tears writes, loses power, and keeps only what was synced, by a seed.

What processes see is in real files. Beside it stands what the platter holds: for every file the bytes of its last sync,
and what was done to it since; for every folder the names of its last sync, and what was done to them since. A power
cut keeps of a file's unsynced changes any of them, of a write any of its sectors, and of a folder's unsynced changes
any first ones. A sync that fails loses for ever what it should have kept, although readers still see it, as Linux does.
"""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from weir.store.disk import SystemDisk

SECTOR = 512
REFUSALS = {
    "write": (errno.EIO, errno.ENOSPC),
    "reserve": (errno.EIO, errno.ENOSPC),
    "sync": (errno.EIO,),
    "open": (errno.EIO, errno.ENOSPC),
    "truncate": (errno.EIO,),
    "rename": (errno.EIO, errno.ENOSPC),
    "unlink": (errno.EIO,),
    "sync_folder": (errno.EIO,),
}
Change = tuple[int, bytes] | int  # bytes at an offset, or a new length


@dataclass(eq=False)
class Inode:
    """One file: its bytes on the platter, and the changes that are not there yet."""

    kept: bytes = b""
    pending: list[Change] = field(default_factory=list)


@dataclass(frozen=True)
class Naming:
    """A change of a folder: what a name means from now on, and perhaps a name that means nothing any more."""

    name: Path
    inode: Inode | None
    gone: Path | None = None


class WatchedDisk(SystemDisk):
    """A disk that says what is asked of it, before it does it. `meet` may refuse by raising OSError."""

    def meet(self, operation: str) -> None:
        """Called with the operation's name."""

    def open(self, path: Path, flags: int) -> int:
        self.meet("open")
        return super().open(path, flags)

    def write(self, fd: int, data: memoryview, offset: int) -> int:
        self.meet("write")
        return super().write(fd, data, offset)

    def reserve(self, fd: int, num_bytes: int) -> None:
        self.meet("reserve")
        super().reserve(fd, num_bytes)

    def truncate(self, fd: int, num_bytes: int) -> None:
        self.meet("truncate")
        super().truncate(fd, num_bytes)

    def sync(self, fd: int) -> None:
        self.meet("sync")
        super().sync(fd)

    def rename(self, old: Path, new: Path) -> None:
        self.meet("rename")
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        self.meet("unlink")
        super().unlink(path)

    def make_folder(self, path: Path) -> None:
        self.meet("make_folder")
        super().make_folder(path)

    def sync_folder(self, path: Path) -> None:
        self.meet("sync_folder")
        super().sync_folder(path)


class FaultyDisk(WatchedDisk):
    """Refuses one operation in `1 / refusals` on average, and loses power before operation number `power_cut`."""

    def __init__(self, rng: random.Random, *, refusals: float = 0.0, power_cut: int | None = None) -> None:
        self.refusals = refusals
        self.refused: Counter[str] = Counter()
        self.is_off = False
        self._rng = rng
        self._left = power_cut
        self._inodes: dict[int, Inode] = {}  # by descriptor
        self._names: dict[Path, Inode | None] = {}  # as processes see them; None: deleted
        self._kept_names: dict[Path, Inode | None] = {}
        self._pending_names: dict[Path, list[Naming]] = {}  # by folder

    # what the store asks

    def meet(self, operation: str) -> None:
        """Raise OSError when the power is off, or when it is this operation's turn to be refused."""
        if self._left is not None:
            self._left -= 1
            self.is_off = self.is_off or self._left < 0
        if self.is_off:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if operation in REFUSALS and self._rng.random() < self.refusals:
            self.refused[operation] += 1
            number = self._rng.choice(REFUSALS[operation])
            raise OSError(number, os.strerror(number))

    def open(self, path: Path, flags: int) -> int:
        known = self._inode(path)
        fd = super().open(path, flags & ~os.O_DIRECT)  # half blocks must pass here
        if known is None:
            known = Inode()
            self._name(Naming(path, known))
        self._inodes[fd] = known
        return fd

    def close(self, fd: int) -> None:
        self._inodes.pop(fd)
        super().close(fd)

    def write(self, fd: int, data: memoryview, offset: int) -> int:
        if len(data) > 1 and self.refusals and self._rng.random() < 0.1:
            data = data[: self._rng.randrange(1, len(data))]  # less than was asked, which is no error
        try:
            written = super().write(fd, data, offset)
        except OSError:
            if not self.is_off:
                torn = os.pwrite(fd, data[: self._rng.randrange(len(data) + 1)], offset)
                self._inodes[fd].pending.append((offset, bytes(data[:torn])))
            raise
        self._inodes[fd].pending.append((offset, bytes(data[:written])))
        return written

    def reserve(self, fd: int, num_bytes: int) -> None:
        super().reserve(fd, num_bytes)
        self._inodes[fd].pending.append(num_bytes)

    def truncate(self, fd: int, num_bytes: int) -> None:
        super().truncate(fd, num_bytes)
        self._inodes[fd].pending.append(num_bytes)

    def sync(self, fd: int) -> None:
        inode = self._inodes[fd]
        try:
            self.meet("sync")  # the real one would keep what this one forgets, at the price of a real disk
        except OSError:
            if not self.is_off:
                inode.kept = self._after(inode)
                inode.pending.clear()
            raise
        inode.kept = changed(inode.kept, inode.pending)
        inode.pending.clear()

    def rename(self, old: Path, new: Path) -> None:
        inode = self._inode(old)
        super().rename(old, new)
        self._name(Naming(new, inode, gone=old))

    def unlink(self, path: Path) -> None:
        was_there = self._inode(path) is not None
        super().unlink(path)
        if was_there:
            self._name(Naming(path, None))

    def sync_folder(self, path: Path) -> None:
        self.meet("sync_folder")
        for naming in self._pending_names.pop(path, []):
            self._keep(naming)

    # what happens to it

    def cut_power(self) -> None:
        """Leave in the folders what the platter holds. The disk stays off: open the store with another one."""
        self.is_off = True
        for namings in self._pending_names.values():
            for naming in namings[: self._rng.randrange(len(namings) + 1)]:
                self._keep(naming)
        for path in self._names:
            path.unlink(missing_ok=True)
        after: dict[Inode, bytes] = {}
        for path, inode in self._kept_names.items():
            if inode is not None:
                path.write_bytes(after.setdefault(inode, self._after(inode)))

    def _inode(self, path: Path) -> Inode | None:
        """The file of this name. One that was there before this disk is on the platter whole."""
        if path not in self._names and path.exists():
            self._names[path] = self._kept_names[path] = Inode(path.read_bytes())
        return self._names.get(path)

    def _name(self, naming: Naming) -> None:
        if naming.gone is not None:
            self._names[naming.gone] = None
        self._names[naming.name] = naming.inode
        self._pending_names.setdefault(naming.name.parent, []).append(naming)

    def _keep(self, naming: Naming) -> None:
        if naming.gone is not None:
            self._kept_names[naming.gone] = None
        self._kept_names[naming.name] = naming.inode

    def _after(self, inode: Inode) -> bytes:
        """The file's bytes when only some of the pending changes arrive, and of those only some sectors."""
        arrived: list[Change] = []
        share = self._rng.choice((0.0, 0.5, 0.9, 1.0))
        for change in inode.pending:
            if isinstance(change, int):
                arrived += [change] if self._rng.random() < share else []
            else:
                offset, data = change
                sectors = range(-(offset % SECTOR), len(data), SECTOR)
                parts = [(max(at, 0), data[max(at, 0) : at + SECTOR]) for at in sectors if self._rng.random() < share]
                arrived += [(offset + at, part) for at, part in parts]
        return changed(inode.kept, arrived)


def changed(content: bytes, changes: list[Change]) -> bytes:
    """A file's bytes after some changes; what lies between its end and a later write is zeros."""
    result = bytearray(content)
    for change in changes:
        if isinstance(change, int):
            del result[change:]
            result.extend(bytes(change - len(result)))
        else:
            offset, data = change
            result.extend(bytes(max(offset + len(data) - len(result), 0)))
            result[offset : offset + len(data)] = data
    return bytes(result)
