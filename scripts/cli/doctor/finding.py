"""The findings of `weir doctor`: one line per check."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Verdict(enum.StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"  # something that is not required is limited or missing
    MISSING = "missing"  # something required is missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check; `advice` says what to do where it is not ok."""

    about: str
    what: str
    verdict: Verdict
    seen: str
    advice: str = ""


def found(about: str, what: str, seen: str, problem: str | None = None, advice: str = "", *, required: bool) -> Finding:
    """A finding; ok where `problem` is None."""
    if problem is None:
        return Finding(about=about, what=what, verdict=Verdict.OK, seen=seen)
    verdict = Verdict.MISSING if required else Verdict.WARNING
    return Finding(about=about, what=what, verdict=verdict, seen=problem, advice=advice)
