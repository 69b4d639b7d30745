"""What is raised for a task that cannot be used."""

from __future__ import annotations

_MESSAGE_CHARS = 4000


class InvalidReference(Exception):
    """The task's code fails, takes too long, or lacks a required part."""


class OutOfMemory(InvalidReference):
    """The task's sizes need more memory than its judge may use."""


class UnsupportedReference(Exception):
    """The task's code works, but candidates for it cannot be judged."""


def described(error: BaseException) -> str:
    """An error as text that can be encoded."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # the task's own error class may raise in __str__
        text = type(error).__name__
    return text[:_MESSAGE_CHARS].encode(errors="replace").decode()
