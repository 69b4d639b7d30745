"""The state file of a continuous run: which groups of its endless order have ended, so that a killed run resumes.

The order of tasks follows from the seed, so a position in it names a task. One JSON line for each start and end of a
group, and for each version that was evaluated; written before the run continues. Invariants: a position that has ended
is never run again; one that was only started is run again, as a new group. One process at a time has the file.
"""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from weir.agents.agent_task import Task
from weir.agents.errors import OtherRun
from weir.store.atomic_file import written_aside


class RunJournal:
    """The state of one continuous run. `close` releases the file."""

    def __init__(self, path: Path, tasks: Sequence[Task], *, seed: int, samples: int) -> None:
        """Read or begin the file. Raises `OtherRun` where it belongs to other tasks, or another process has it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = path.with_name(path.name + ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise OtherRun(f"another process continues the run in {path}; stop it, or name another --state") from error
        head = {"tasks": _digest(tasks), "seed": seed, "samples": samples}
        lines = _lines(path)
        if lines and lines[0] != head:
            raise OtherRun(
                f"{path} was begun with other tasks, seed or samples; use those again, or name another --state"
            )
        self._ended = _Positions(lines[0].get("below", 0) if lines else 0)
        started: dict[int, str] = {}
        self.evaluated: set[str] = set()
        for line in lines[1:]:
            if "started" in line:
                started[line["started"]] = line["group"]
            elif "ended" in line:
                self._ended.add(line["ended"])
            elif "below" in line:
                self._ended.raise_to(line["below"])
            elif "evaluated" in line:
                self.evaluated.add(line["evaluated"])
        self.interrupted = [group for position, group in started.items() if position not in self._ended]
        self._write(path, head)
        self._file = path.open("ab")

    def __contains__(self, position: object) -> bool:
        """Whether the group at a position has ended."""
        return position in self._ended

    @property
    def num_ended(self) -> int:
        """The number of groups that have ended."""
        return self._ended.count

    def start(self, position: int, group_id: str) -> None:
        """A group starts."""
        self._add({"started": position, "group": group_id})

    def end(self, position: int) -> None:
        """A group has ended."""
        self._ended.add(position)
        self._add({"ended": position})

    def evaluate(self, version: str) -> None:
        """A version has been evaluated."""
        self.evaluated.add(version)
        self._add({"evaluated": version})

    def close(self) -> None:
        """Close the file. May be called twice."""
        self._file.close()
        self._lock.close()

    def _add(self, line: dict[str, Any]) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()

    def _write(self, path: Path, head: dict[str, Any]) -> None:
        """Write the state anew, without what is over."""
        rest: list[dict[str, Any]] = [{"below": self._ended.below}, *({"ended": n} for n in sorted(self._ended.above))]
        rest += [{"evaluated": version} for version in sorted(self.evaluated)]
        with written_aside(path) as aside:
            aside.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in (head, *rest)))


class _Positions:
    """A set of positions: all below one, and some above."""

    def __init__(self, below: int) -> None:
        self.below = below
        self.above: set[int] = set()

    def __contains__(self, position: object) -> bool:
        return isinstance(position, int) and (position < self.below or position in self.above)

    @property
    def count(self) -> int:
        return self.below + len(self.above)

    def add(self, position: int) -> None:
        self.above.add(position)
        while self.below in self.above:
            self.above.remove(self.below)
            self.below += 1

    def raise_to(self, below: int) -> None:
        self.below = max(self.below, below)
        self.above = {position for position in self.above if position >= self.below}


def _digest(tasks: Sequence[Task]) -> str:
    return hashlib.sha256(msgspec.json.encode(list(tasks))).hexdigest()


def _lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of the file; the last one of a killed run may be torn."""
    if not path.exists():
        return []
    lines: list[dict[str, Any]] = []
    for line in path.read_bytes().splitlines():
        try:
            lines.append(msgspec.json.decode(line))
        except msgspec.DecodeError:
            break
    return lines
