"""What can go wrong in the store. Every message says what was tried, what was seen, and what to do next.

StoreError
├── StoreUnavailable   the disk refused a write: full, read-only, failing
├── ObjectConflict     object storage has another object of that name
├── LogFull            records arrive faster than the disk takes them
├── LogClosed          an append after close
├── LogLocked          another process writes under the same writer name
├── SchemaTooNew       written by a later version of Weir
├── StoreCorrupt       stored bytes do not match their own hashes
├── CompactionRunning  another process compacts this store
├── SessionUnknown     no session of that name was registered or recorded
├── CallUnknown        no call, or several, have this id or begin with it
├── SessionConflict    the session or group is there already, and is different
├── RewardConflict     the idempotency key holds another reward
├── KeyConflict        an access key of that name is there already
├── KeyUnknown         there is no access key of that name
├── RoundConflict      the groups, or the round, belong to another claim
├── LeaseHeld          another process holds the lease
├── LeaseLost          another process took the lease meanwhile: nothing is committed under the old one
├── VersionConflict    the weight version is there already, and is different
├── VersionUnknown     a weight version that is not there, or that is not an integer
├── QueryRefused       a query that is wrong, or that is not a question
├── QueryStopped       a query that ran into its limit of time or memory
├── ImportRefused      a file to import that is not what it should be
└── OutputRefused      a file that an answer or an export is to be cannot be written
"""

from __future__ import annotations


class StoreError(Exception):
    """Base of all errors of the store. `exit_code` is what the command line ends with."""

    exit_code = 1


class StoreUnavailable(StoreError):
    """The disk refused: nothing of this record is promised, and the next append tries afresh."""


class ObjectConflict(StoreError):
    """An object never changes, and one of this name is there with another content."""


class LogFull(StoreError):
    """The writer's queue is full: the disk is slower than the calls."""


class LogClosed(StoreError):
    """The log writer was closed before this record was appended."""


class LogLocked(StoreError):
    """A writer name belongs to one process at a time."""

    exit_code = 2


class SchemaTooNew(StoreError):
    """The data were written by a later version of Weir than this one."""


class StoreCorrupt(StoreError):
    """Stored data contradict their own checks."""


class CompactionRunning(StoreError):
    """One process compacts a store at a time."""


class SessionUnknown(StoreError):
    """There is no such session."""

    exit_code = 2


class CallUnknown(StoreError):
    """There is no such call, or more than one."""

    exit_code = 2


class SessionConflict(StoreError):
    """The session or group was registered before with other values."""

    exit_code = 2


class RewardConflict(StoreError):
    """The idempotency key was used before for another reward."""

    exit_code = 2


class KeyConflict(StoreError):
    """A name belongs to one access key for ever."""

    exit_code = 2


class KeyUnknown(StoreError):
    """There is no such access key."""

    exit_code = 2


class RoundConflict(StoreError):
    """A group is consumed once, a round is claimed once and committed with one version."""


class LeaseHeld(StoreError):
    """One process at a time holds a lease."""


class LeaseLost(StoreError):
    """The lease was not renewed in time and another process has it now."""


class VersionConflict(StoreError):
    """A weight version names one set of weights for ever."""


class VersionUnknown(StoreError):
    """There is no such weight version, or the engine's name for its weights is not an integer."""


class QueryRefused(StoreError):
    """The query is not valid, or it is not a question."""

    exit_code = 2


class QueryStopped(StoreError):
    """The query ran into a limit, or was interrupted."""


class ImportRefused(StoreError):
    """A line of the file cannot be kept, so nothing of it was."""

    exit_code = 2


class OutputRefused(StoreError):
    """The disk refuses the file that was asked for."""
