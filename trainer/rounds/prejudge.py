"""Prejudging: while a round trains, judges the answers that the next round would claim.

Invariants: results do not depend on it. Verdicts are stored under the hash of the judged content, where the round that
claims the groups finds them; a crash loses none. The groups of a pass are pinned until their verdicts are stored; the
next pass takes over the pin of one that was killed. At most `judge_ahead_groups` groups, the oldest ready ones, are
judged before they are claimed. An outage of a judge stops it with a warning; the next round reports the outage.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.pins import acknowledge, pin_groups
from weir.store.catalog.ready_groups import count_ready
from weir.store.config import StoreConfig
from weir.store.errors import GroupsGone
from weir.trainer.credit.branches import on_kept_branches
from weir.trainer.credit.samples import is_judged
from weir.trainer.errors import TrainerError
from weir.trainer.rewards.answers import Answer
from weir.trainer.rewards.judge import ask_all
from weir.trainer.rounds.group_selection import ChosenGroup, choose_groups
from weir.trainer.settings.config import TrainerConfig

PIN = "judging ahead of the next round"
logger = logging.getLogger("weir.trainer.rounds.prejudge")


class JudgingAhead:
    """A thread that judges for the next round, whose parent version is `parent`, until it is finished or closed."""

    def __init__(
        self,
        catalog: Catalog,
        store: StoreConfig,
        config: TrainerConfig,
        *,
        parent: int,
        on_step: Callable[[str], None],
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._config = config.model_copy(update={"groups_per_round": config.judge_ahead_groups})
        self._parent = parent
        self._on_step = on_step
        self._wanted = True
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._work = self._loop.create_task(self._judge_until_ended())
        self._thread = threading.Thread(target=self._run, name="weir-judging-ahead", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Send no further requests; returns once all answers to pending ones are stored."""
        self._wanted = False
        self._end(self._ended.set)

    def close(self) -> None:
        """Cancel pending requests; the next round repeats those whose answers are not stored."""
        self._wanted = False
        self._end(self._work.cancel)

    def _end(self, request_end: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # its loop has ended
            self._loop.call_soon_threadsafe(request_end)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._work)
        except asyncio.CancelledError:
            pass
        except Exception:  # the thread's boundary: the next round meets and reports the same error
            logger.exception("judging ahead of the next round failed")
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _judge_until_ended(self) -> None:
        seen = -1
        while self._wanted:
            ready = count_ready(
                self._catalog,
                timeout_s=self._config.group_timeout_s,
                min_size_ratio=self._config.min_timeout_group_size_ratio,
            )
            if ready != seen:
                seen = ready
                if not await self._judge_ready():
                    return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), self._config.loop_poll_s)

    async def _judge_ready(self) -> bool:
        """Judge the ready groups. False on an outage."""
        read_us = self._catalog.now_us()
        try:
            chosen = choose_groups(self._catalog, self._store, self._config, parent=self._parent).groups
            pin_groups(self._catalog, PIN, [group.row.group_id for group in chosen], read_us=read_us)
        except (TrainerError, GroupsGone) as error:
            logger.warning("nothing is judged ahead of the next round: %s", error)
            return False
        self._on_step("judging_ahead")
        answers = [answer for group in chosen for answer in self._answers(group)]
        given = await ask_all(answers, {}, self._catalog, self._config, round_id=None, wanted=lambda: self._wanted)
        acknowledge(self._catalog, PIN)
        outages = [outage for one in given.values() for outage in one.outages]
        if outages:
            logger.warning("judging ahead of the next round stops: %s", outages[0])
        self._on_step("judged_ahead")
        return not outages

    def _answers(self, group: ChosenGroup) -> Iterator[Answer]:
        for calls in group.calls.values():
            kept = on_kept_branches(calls, self._config.branches)
            yield from (Answer(call=c, task=group.task) for c in calls if c.call_id in kept and is_judged(c))
