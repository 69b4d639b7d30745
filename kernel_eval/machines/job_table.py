"""Evaluations by job id: those that are running, and those that ended last."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Generic, TypeVar

from cachetools import LRUCache

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class JobEntry(Generic[Result]):
    """One job id: the content that it stands for, and its evaluation, running or ended."""

    content: str
    work: asyncio.Task[Result]


class JobTable(Generic[Result]):
    """Entries by job id: all running evaluations, and of the ended ones the `max_ended` that were used last."""

    def __init__(self, max_ended: int) -> None:
        self._running: dict[str, JobEntry[Result]] = {}
        self._ended: LRUCache[str, JobEntry[Result]] = LRUCache(max_ended)

    def find(self, job_id: str) -> JobEntry[Result] | None:
        """The entry of a job id; None if it is unknown."""
        return self._running.get(job_id) or self._ended.get(job_id)

    def keep(self, job_id: str, work: asyncio.Task[Result], content: str = "") -> None:
        """Keep an evaluation under a job id, in place of an earlier one."""
        entry = JobEntry(content, work)
        self._ended.pop(job_id, None)
        self._running[job_id] = entry
        work.add_done_callback(lambda _: self._end(job_id, entry))

    def pop(self, job_id: str) -> JobEntry[Result] | None:
        """Remove a job id. Returns its entry; None if it is unknown."""
        return self._running.pop(job_id, None) or self._ended.pop(job_id, None)

    def _end(self, job_id: str, entry: JobEntry[Result]) -> None:
        if self._running.get(job_id) is entry:
            del self._running[job_id]
            self._ended[job_id] = entry
