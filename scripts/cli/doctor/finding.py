"""What `weir doctor` found out: one line for each thing that it looked at."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Verdict(enum.StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"  # something works less well, or not at all, and is not required
    MISSING = "missing"  # something required does not work


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at; `advice` says what to do where it is not ok."""

    about: str
    what: str
    verdict: Verdict
    seen: str
    advice: str = ""


def found(about: str, what: str, seen: str, problem: str | None = None, advice: str = "", *, required: bool) -> Finding:
    """A finding: ok where there is no problem."""
    if problem is None:
        return Finding(about=about, what=what, verdict=Verdict.OK, seen=seen)
    verdict = Verdict.MISSING if required else Verdict.WARNING
    return Finding(about=about, what=what, verdict=verdict, seen=problem, advice=advice)
