"""Judging ahead of the claim: while a round trains, the answers that the next one would take are judged already.

Invariant: nothing is decided here. Verdicts go into the store as any, by the content that was judged, and the round
that claims those groups finds them there: its results are what they would be without, and a crash loses no verdict. At
most `judge_ahead_groups` groups, the oldest that are ready, are judged before they are claimed. An outage ends the work
ahead with a line, and is the next round's to meet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.ready_groups import count_ready
from weir.store.config import StoreConfig
from weir.trainer.credit.branches import on_kept_branches
from weir.trainer.credit.samples import is_judged
from weir.trainer.errors import TrainerError
from weir.trainer.rewards.answers import Answer
from weir.trainer.rewards.judge import ask_all
from weir.trainer.rounds.group_selection import ChosenGroup, choose_groups
from weir.trainer.settings.config import TrainerConfig

logger = logging.getLogger("weir.trainer.rounds.prejudge")


class JudgingAhead:
    """A thread that judges for the round after the one whose version is `parent`, from its making until it is ended."""

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
        self._work = self._loop.create_task(self._judge_what_comes())
        self._thread = threading.Thread(target=self._run, name="weir-judging-ahead", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Ask nobody anew, and return when those who were asked have answered and it is stored."""
        self._wanted = False
        self._tell(self._ended.set)

    def close(self) -> None:
        """Return at once; what is not stored by now is asked for again."""
        self._wanted = False
        self._tell(self._work.cancel)

    def _tell(self, what: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # its loop has ended
            self._loop.call_soon_threadsafe(what)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._work)
        except asyncio.CancelledError:
            pass
        except Exception:  # the edge of the thread: the round that comes next meets the same, and says so
            logger.exception("judging ahead of the next round ended")
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _judge_what_comes(self) -> None:
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
        """Judge the ready groups. False when a source is away."""
        try:
            chosen = choose_groups(self._catalog, self._store, self._config, parent=self._parent).groups
        except TrainerError as error:
            logger.warning("nothing is judged ahead of the next round: %s", error)
            return False
        answers = [answer for group in chosen for answer in self._answers(group)]
        given = await ask_all(answers, {}, self._catalog, self._config, round_id=None, wanted=lambda: self._wanted)
        outages = [outage for one in given.values() for outage in one.outages]
        if outages:
            logger.warning("judging ahead of the next round stops: %s", outages[0])
        self._on_step("judged_ahead")
        return not outages

    def _answers(self, group: ChosenGroup) -> Iterator[Answer]:
        for calls in group.calls.values():
            kept = on_kept_branches(calls, self._config.branches)
            yield from (Answer(call=c, task=group.task) for c in calls if c.call_id in kept and is_judged(c))
