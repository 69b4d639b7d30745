"""Errors of the store. Every message says what was tried, what was seen, and what to do next.

StoreError
├── StoreUnavailable   the disk, the database or object storage refuses
├── ObjectConflict     object storage has another object of that name
├── LogFull            records arrive faster than the disk takes them
├── LogClosed          an append after close
├── LogLocked          another process writes under the same writer name
├── SchemaTooNew       written by a later version of Weir
├── StoreCorrupt       stored bytes do not match their own hashes
├── CompactionRunning  another process compacts or changes this store
├── SessionUnknown     no session of that name was registered or recorded
├── CallUnknown        no call, or several, match the id
├── SessionConflict    the session or group exists with other values
├── RewardConflict     the idempotency key has another reward
├── KeyConflict        an access key of that name exists
├── KeyUnknown         no access key has that name
├── RoundConflict      the groups, or the round, belong to another claim
├── GroupsGone         retention removed a group since it was read
├── LeaseHeld          another process holds the lease
├── LeaseLost          another process took the lease meanwhile: nothing is committed under the old one
├── VersionConflict    the weight version exists with other weights
├── VersionUnknown     a weight version that does not exist, or is not an integer
├── QueryRefused       a query that is invalid, or not a single SELECT
├── QueryStopped       a query that reached its limit of time or memory, or was interrupted
├── ImportRefused      a file that cannot be imported
└── OutputRefused      an output file that cannot be written
"""

from __future__ import annotations


class StoreError(Exception):
    """Base of all errors of the store. `exit_code` is the exit status of a command that it ends."""

    exit_code = 1


class StoreUnavailable(StoreError):
    """The disk, the database or object storage refused. An append that failed is not recorded; later ones are tried."""


class ObjectConflict(StoreError):
    """An object never changes, and one of this name exists with other content."""


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
    """Stored data do not match their checksums or hashes."""


class CompactionRunning(StoreError):
    """One process at a time compacts a store, or changes its files."""


class SessionUnknown(StoreError):
    """No session has this id."""

    exit_code = 2


class CallUnknown(StoreError):
    """No call, or more than one, has this id."""

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
    """No access key has this name."""

    exit_code = 2


class RoundConflict(StoreError):
    """A group is consumed once, a round is claimed once and committed with one version."""


class GroupsGone(StoreError):
    """A consumer pins groups that it has read, and one of them left the store in between."""


class LeaseHeld(StoreError):
    """One process at a time holds a lease."""


class LeaseLost(StoreError):
    """The lease was not renewed in time and another process has it now."""


class VersionConflict(StoreError):
    """A weight version names one set of weights for ever."""


class VersionUnknown(StoreError):
    """No weight version has this number, or the engine's name for its weights is not an integer."""


class QueryRefused(StoreError):
    """The query is invalid, or not a single SELECT."""

    exit_code = 2


class QueryStopped(StoreError):
    """The query reached a limit, or was interrupted."""


class ImportRefused(StoreError):
    """A line of the file cannot be imported, so nothing of the file was."""

    exit_code = 2


class OutputRefused(StoreError):
    """The file system refuses the output file."""
