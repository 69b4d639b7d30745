"""The limits of one contained command, and how it ended."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from weir.agents.config import AgentsConfig


class EndedBy(enum.StrEnum):
    """The limit that a command exceeded."""

    TIME = "time"
    MEMORY = "memory"
    PROCESSES = "processes"
    DISK = "disk"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLimits:
    """Limits over all processes of a command."""

    seconds: float
    memory_bytes: int
    processes: int
    disk_bytes: int
    files: int
    output_bytes: int  # printed; more of it ends the command
    kept_bytes: int  # of what it printed

    @staticmethod
    def of(config: AgentsConfig, seconds: float) -> CommandLimits:
        """The configured limits, with a time limit."""
        return CommandLimits(
            seconds=seconds,
            memory_bytes=config.command_memory_bytes,
            processes=config.command_processes,
            disk_bytes=config.command_disk_bytes,
            files=config.command_files,
            output_bytes=config.command_output_bytes,
            kept_bytes=config.command_kept_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnd:
    """How a command ended.

    Attributes:
        exit_code: Its exit code, 128 + the signal's number after a signal; None where its launcher was killed.
        ended_by: The limit that it exceeded.
        seconds: How long it ran.
        printed_bytes: What it printed, kept or not.
        tail: The end of what it printed.
    """

    exit_code: int | None
    ended_by: EndedBy | None
    seconds: float
    printed_bytes: int
    tail: str
