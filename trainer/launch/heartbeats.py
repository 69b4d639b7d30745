"""Signs of life of this machine's ranks: a file for each in the pool's work folder, which a thread of the rank writes.

A process that is stopped, or whose interpreter is stuck, writes nothing, while its connections stay open and whoever
waits for it waits on. Silence is counted in looks and not in seconds, so that a machine that slept kills nothing.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

PREFIX = "alive-"
BEAT_S = 2.0
LOOK_S = 10.0
SILENT_LOOKS = 18  # in a row, until a rank counts as frozen: a machine under load may only be slow


def beat(folder: Path, rank: int) -> None:
    """Have a thread of this rank say that it lives, from now on, as long as the folder is there."""
    threading.Thread(target=_beat, args=(folder / f"{PREFIX}{rank}",), daemon=True).start()


def _beat(file: Path) -> None:
    number = 0
    try:
        while True:
            file.write_text(str(number))
            number += 1
            time.sleep(BEAT_S)
    except OSError:  # the pool was closed
        pass


class Heartbeats:
    """What the owner of a work folder has seen of its ranks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[str, str] = {}
        self._silent: dict[str, int] = {}  # looks in a row

    def frozen(self) -> list[str]:
        """Look at all ranks; those that have been silent for too many looks, as words."""
        for file in self._folder.glob(f"{PREFIX}*"):
            text, rank = file.read_text(), file.name.removeprefix(PREFIX)
            self._silent[rank] = self._silent.get(rank, 0) + 1 if text == self._seen.get(rank) else 0
            self._seen[rank] = text
        return sorted(f"rank {rank}" for rank, looks in self._silent.items() if looks >= SILENT_LOOKS)
