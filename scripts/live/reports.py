"""What a process of the controller's reports: one JSON object a line, on what was its standard output.

Invariant: nothing else gets there. Whatever hooks, agents, libraries and their processes print goes to the log, where
standard error goes.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

BEAT_S = 5.0
ALIVE = {"alive": True}


class Reports:
    """The way to the controller. A process makes one, before anything else can print."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._file = os.fdopen(os.dup(1), "w")  # a copy that the processes it starts do not inherit
        os.dup2(2, 1)
        self._sending = threading.Lock()

    def send(self, report: dict[str, Any]) -> None:
        """Report something, from any thread."""
        with self._sending:
            self._file.write(json.dumps(report) + "\n")
            self._file.flush()

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        """Report now and then that this process lives, whatever else it does meanwhile."""
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(BEAT_S):
                self.send(ALIVE)

        thread = threading.Thread(target=beat, name="reports-beat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
