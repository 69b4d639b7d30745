"""Errors of the commands themselves.

CommandError          the command failed (exit 1)
├── UsageError        wrong flags, files or configuration (exit 2)
├── NoDevice          the command needs a GPU, and there is none
└── ServerFailed      a server that the command started did not become ready, or ended
"""

from __future__ import annotations


class CommandError(Exception):
    """Base of the errors that end a command with one line; `exit_code` is its exit status."""

    exit_code = 1


class UsageError(CommandError, ValueError):
    """Wrong use; the message names the given value, the expected one, and what to do."""

    exit_code = 2


class NoDevice(CommandError):
    """torch can use no GPU; the message names the device that was wanted."""


class ServerFailed(CommandError):
    """A server did not become ready or ended by itself; the line names its log."""
