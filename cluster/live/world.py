"""What a host of real members needs of the world around it, and what the world answers."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class Phase(enum.StrEnum):
    """What a member is at, from one decision to the next."""

    ROLLOUT = "rollout"
    TRAIN = "train"
    WAITS = "waits"
    SWITCH = "switch"
    LOAD = "load"
    LOST = "lost"


class MemberFailed(Exception):
    """A member did not do what it was to do: it counts as lost until it answers again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundEnd:
    """How a round ended.

    Attributes:
        version: The weights that it made; None: it made none.
        groups: The groups that it consumed.
        left_out: Groups that were ready and that no round will take.
        failure: Why it made none; the next attempt resumes it.
        is_fatal: No further attempt would succeed: settings or data are wrong.
    """

    version: int | None = None
    groups: Sequence[str] = ()
    left_out: Sequence[str] = ()
    failure: str | None = None
    is_fatal: bool = False


class World(Protocol):
    """Real members and agents. All of it may be repeated; what is done already is done at once."""

    async def generate(self, member: str) -> None:
        """Bring a member into the rotation, with the newest weights. Raises `MemberFailed`."""

    async def leave(self, member: str) -> None:
        """Take a member out of the rotation; its calls move to others, or wait. Raises `MemberFailed`."""

    async def load(self, members: Sequence[str]) -> Mapping[str, str]:
        """Hold the calls and load the newest weights; returns why members failed, by name."""

    async def train(self, members: Sequence[str], groups: Sequence[str]) -> RoundEnd:
        """Finish the round that was left open, or else train on these groups, on the devices of these members."""

    def allow(self, count: int) -> None:
        """Let agents start as many more groups."""

    def began(self, member: str, phase: Phase, event: str, seconds: Mapping[str, float], note: str | None) -> None:
        """A member is at something else from now on; the seconds are those of its phase before, by activity."""

    def say(self, text: str) -> None:
        """Tell people."""
