"""The journal of `weir sft-data`: outcomes of rows in a file beside the output, from which a stopped run resumes.

Invariants: an added outcome survives a kill; the files of examples and drops appear whole, in the order of the rows.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from pathlib import Path

import msgspec

from weir.agents.errors import OtherRun
from weir.agents.sft_data import Drop, Example, Wanted
from weir.store.atomic_file import written_aside


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the journal."""

    number: int  # of the row
    kept: Example | None = None
    dropped: Drop | None = None


class Journal:
    """Outcomes by row number. Raises `OtherRun` for a journal of other pairs or settings."""

    def __init__(self, path: Path, pairs: Path, wanted: Wanted) -> None:
        self._path = path
        head = msgspec.json.encode({"pairs": str(pairs), **msgspec.to_builtins(wanted)})
        known = path.read_bytes() if path.exists() else b""
        first, *lines = (
            known.splitlines() if b"\n" in known else [head]
        )  # without a line feed: killed during the first write
        if first != head:
            raise OtherRun(f"{path} was begun with other pairs or settings; use those again, or remove it")
        self.outcomes = {one.number: one for line in lines if (one := _read(line)) is not None}
        with written_aside(path) as aside:
            kept = map(msgspec.json.encode, self.outcomes.values())
            aside.write_bytes(b"".join(line + b"\n" for line in (head, *kept)))
        self._file = path.open("ab")

    def add(self, number: int, outcome: Example | Drop) -> None:
        """Add a row's outcome."""
        kept, dropped = (outcome, None) if isinstance(outcome, Example) else (None, outcome)
        self.outcomes[number] = Outcome(number=number, kept=kept, dropped=dropped)
        self._file.write(msgspec.json.encode(self.outcomes[number]) + b"\n")
        self._file.flush()

    def finish(self, out: Path) -> list[str]:
        """Write examples and drops in the order of the rows, and delete the journal; returns the report's lines."""
        self._file.close()
        outcomes = [self.outcomes[number] for number in sorted(self.outcomes)]
        kept = [one.kept for one in outcomes if one.kept is not None]
        drops = [one.dropped for one in outcomes if one.dropped is not None]
        drops_file = out.with_name(f"{out.stem}.dropped.jsonl")
        for file, rows in ((drops_file, drops), (out, kept)):
            with written_aside(file) as aside:
                aside.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
        self._path.unlink()
        return _report(kept, drops, out, drops_file)


def _read(line: bytes) -> Outcome | None:
    try:
        return msgspec.json.decode(line, type=Outcome)
    except msgspec.DecodeError:  # the torn last line of a killed run
        return None


def _report(kept: Sequence[Example], drops: Sequence[Drop], out: Path, drops_file: Path) -> list[str]:
    num_turned = sum(len(one.messages) > 2 for one in kept)
    num_timed = sum(one.speedup is not None for one in kept)
    lines = [
        f"{len(kept)} of {len(kept) + len(drops)} pairs kept in {out}: {num_turned} of two turns, "
        f"{num_timed} timed on a device"
    ]
    if len(kept) > num_timed:
        lines.append(f"{len(kept) - num_timed} may be slower than their references: no device measured them")
    counts = collections.Counter((drop.reason, drop.detail) for drop in drops)
    lines += [
        f"  {count:6} {reason}{': ' + detail if detail else ''}" for (reason, detail), count in counts.most_common()
    ]
    return [*lines, f"dropped pairs, each with its reason: {drops_file}"] if drops else lines
