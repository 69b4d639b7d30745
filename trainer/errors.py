"""Errors of the trainer, named for the boundary that failed.

TrainerError             base; exit status 1
├── TrainerUsageError    wrong settings, data or folders given by the user (exit 2)
├── VersionError         a version folder is missing, incomplete, does not match its manifest or cannot be written
├── RoundError           a claimed round cannot be resumed from its manifest
├── RoundBusy            another process holds the rounds' lock
├── JudgeUnavailable     a source of rewards did not answer; the round stays open and the next start resumes it
├── NotFinite            a loss, gradient or weight is not a finite number; no weights were written
├── PublishFailed        no proxy or no engine took the version; the round is committed, publishing can be repeated
│   └── HoldTooShort     no engine took it within the time that calls may be held
└── SwitchFailed         engines kept the devices that training was to have; the round stays open
"""

from __future__ import annotations


class TrainerError(Exception):
    """Base of this part's errors; `exit_code` is the status that a command ends with."""

    exit_code = 1


class TrainerUsageError(TrainerError, ValueError):
    """The user's settings, data or folders are invalid; the message says what was expected."""

    exit_code = 2


class VersionError(TrainerError):
    """A version folder cannot be trusted, or written; the message names the file."""


class RoundError(TrainerError):
    """An input that a round was claimed with is missing or was changed."""


class RoundBusy(TrainerError):
    """Two rounds cannot run at once over one store."""


class JudgeUnavailable(TrainerError):
    """A source of rewards failed, which says nothing about any answer and never counts as a reward."""


class NotFinite(TrainerError):
    """Training would write NaN or infinity into the weights."""


class PublishFailed(TrainerError):
    """No engine serves the version; engines keep serving the one they have."""


class HoldTooShort(PublishFailed):
    """Every engine needs longer to load than calls may be held for it."""


class SwitchFailed(TrainerError):
    """Devices that engines and training take in turns did not change hands; the engines serve."""
