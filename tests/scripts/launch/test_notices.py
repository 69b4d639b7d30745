"""What a full disk does to notices: they are lost, and the command continues."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, cast

from rich.console import Console

from weir.scripts.launch.notices import Notices


def test_a_notice_that_cannot_be_written_is_lost(tmp_path: Path) -> None:
    full = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w")
    print("lost", file=Notices(full), flush=True)
    Console(file=cast(IO[str], Notices(full))).print("lost")
    with contextlib.suppress(OSError):  # it cannot write what it holds
        full.close()
    with (tmp_path / "log").open("w") as log:
        print("kept", file=Notices(log))
    assert (tmp_path / "log").read_text() == "kept\n"


def test_the_compactor_of_a_disk_without_room_for_its_log_tries_again(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "catalog.sqlite").mkdir()  # it cannot be opened, which is said at each attempt
    code = (
        "from weir.store.maintenance import upkeep\n"
        "from weir.scripts.cli.main import main\n"
        "import os, sys\n"
        "attempt, attempts = upkeep.compact, []\n"
        "def compact(config):\n"
        "    attempts.append(config)\n"
        "    if len(attempts) == 3: os._exit(0)\n"
        "    return attempt(config)\n"
        "upkeep.compact = compact\n"
        "main()\n"
    )
    command = [sys.executable, "-c", code, "store", "compact", "--every", "1", "--root", str(tmp_path / "store")]
    with open("/dev/full", "wb") as full:
        assert subprocess.run(command, stdout=full, stderr=full, check=False).returncode == 0
