"""Errors of the commands themselves.

CommandError          the command could not do what it was asked (exit 1)
├── UsageError        it was asked wrongly: flags, files, configuration (exit 2)
├── NoDevice         it needs a GPU, and there is none
└── ServerFailed      a server that the command started did not come up, or died
"""

from __future__ import annotations


class CommandError(Exception):
    """Base of the errors that end a command with one line; `exit_code` is the process's status."""

    exit_code = 1


class UsageError(CommandError, ValueError):
    """Wrong use: the line says what was given, what was expected and what to do next."""

    exit_code = 2


class NoDevice(CommandError):
    """There is no GPU that torch can use; the line says what was looked for."""


class ServerFailed(CommandError):
    """A server did not become ready or ended by itself; the line names its log."""
