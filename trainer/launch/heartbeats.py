"""Signs of life of this machine's ranks: a file for each in the pool's work folder; a thread of the rank sets its time.

A process that is stopped, or whose interpreter is stuck, sets none, while its connections stay open and whoever waits
for it waits on. Silence is counted in looks and not in seconds, so that a machine that slept kills nothing. A time
needs no room, so a full disk silences nobody.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

logger = logging.getLogger("weir.trainer.launch.heartbeats")
PREFIX = "alive-"
BEAT_S = 2.0
LOOK_S = 10.0
SILENT_LOOKS = 18  # in a row, until a rank counts as frozen: a machine under load may only be slow


def beat(folder: Path, rank: int) -> None:
    """Have a thread of this rank say that it lives, from now on, as long as the folder is there."""
    threading.Thread(target=_beat, args=(folder / f"{PREFIX}{rank}",), daemon=True).start()


def _beat(file: Path) -> None:
    while True:
        try:
            file.touch()
        except FileNotFoundError:  # the pool was closed
            return
        except OSError as error:  # a rank without a file is not looked at, and with one the next beat counts
            logger.warning("%s cannot be written: %s", file, error)
        time.sleep(BEAT_S)


class Heartbeats:
    """What the owner of a work folder has seen of its ranks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[str, int] = {}
        self._silent: dict[str, int] = {}  # looks in a row

    def frozen(self) -> list[str]:
        """Look at all ranks; those that have been silent for too many looks, as words."""
        for file in self._folder.glob(f"{PREFIX}*"):
            beat_ns, rank = file.stat().st_mtime_ns, file.name.removeprefix(PREFIX)
            self._silent[rank] = self._silent.get(rank, 0) + 1 if beat_ns == self._seen.get(rank) else 0
            self._seen[rank] = beat_ns
        return sorted(f"rank {rank}" for rank, looks in self._silent.items() if looks >= SILENT_LOOKS)
