"""Budgets of registered sessions: limits on calls, output tokens and seconds, charged in the catalog.

The answer that uses a budget up ends in an orderly way, with finish reason `length`; later calls get the dialect's
context-length error, which agents know as the end. The counts live in the catalog, for all processes over one store:
calls are charged when they begin and tokens before an answer's last byte is sent, so that an agent which waits for its
answers is counted exactly whichever process it asks. Calls of one session that run at the same time each get all the
tokens that are left when they begin; by that much at most the tokens may be exceeded.

Invariant: all charges that wait in a process are one transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from weir.proxy.conversation.caller import Membership
from weir.proxy.engines.capture import Capture, Finish
from weir.proxy.errors import ContextTooLong, Unavailable
from weir.proxy.metrics import Metrics
from weir.store.catalog.budgets import Charge, Charged, charge_budgets
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.rows import BudgetRow

ENDED = "budget:"  # how `finish_matched` begins where a budget ended an answer

logger = logging.getLogger("weir.proxy.sessions.budgets")


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """The limits of one call: tokens of its answer, and the monotonic time at which it ends. None: no limit."""

    session_id: str
    output_tokens: int | None
    deadline: float | None

    def capped(self, max_new_tokens: int) -> int:
        """The smaller of a limit on an answer's tokens and the allowance's."""
        return max_new_tokens if self.output_tokens is None else min(max_new_tokens, self.output_tokens)


class Budgets:
    """Charges calls to their sessions, in the catalog."""

    def __init__(self, catalog: Catalog, metrics: Metrics) -> None:
        self._catalog = catalog
        self._metrics = metrics
        self._waiting: list[tuple[Charge, asyncio.Future[Charged] | None]] = []
        self._charging: asyncio.Task[None] | None = None

    async def begin(self, member: Membership, num_calls: int) -> Allowance | None:
        """Charge calls that begin; None where their session has no budget.

        Raises `ContextTooLong` where the budget is used up, or `Unavailable`.
        """
        if not member.has_budget:
            return None
        charged = await self._charge(Charge(session_id=member.session_id, calls=num_calls))
        budget = charged.budget
        assert budget is not None
        if not charged.granted:
            self._metrics.budget_endings.labels(by=budget.ended_by or "calls", how="refused").inc()
            raise ContextTooLong(refusal(budget, num_calls), param="messages")
        return allowance(budget, num_calls, time.time(), time.monotonic())

    async def settle(self, allowed: Allowance, output_tokens: int, *, was_answered: bool) -> None:
        """Charge the tokens of a call that ended; one without answer and tokens is not counted. Never raises.

        While the catalog refuses, the charge stays queued for the next transaction.
        """
        given_back = 0 if was_answered or output_tokens else 1
        with contextlib.suppress(Unavailable):
            await self._charge(Charge(session_id=allowed.session_id, calls=-given_back, output_tokens=output_tokens))

    async def close(self) -> None:
        """Wait for the transaction in progress."""
        if self._charging is not None:
            await self._charging
        if self._waiting:
            logger.error("the usage of %d calls was never charged to their sessions", len(self._waiting))

    async def _charge(self, charge: Charge) -> Charged:
        future: asyncio.Future[Charged] = asyncio.get_running_loop().create_future()
        self._waiting.append((charge, future))
        if self._charging is None or self._charging.done():
            self._charging = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        while any(future is not None for _, future in self._waiting):
            batch, self._waiting = self._waiting, []
            try:
                charged = await asyncio.to_thread(charge_budgets, self._catalog, [charge for charge, _ in batch])
            except Exception as error:  # the edge of a task: the waiting calls must get the error
                self._requeue(batch, error)
                continue
            for (_, future), result in zip(batch, charged, strict=True):
                if future is not None and not future.done():
                    future.set_result(result)

    def _requeue(self, batch: list[tuple[Charge, asyncio.Future[Charged] | None]], error: Exception) -> None:
        logger.error("budgets of %d calls could not be charged: %s", len(batch), error)
        self._waiting[:0] = [(charge, None) for charge, _ in batch if charge.calls <= 0]
        for _, future in batch:
            if future is not None and not future.done():
                future.set_exception(Unavailable(f"the session's budget cannot be read: {error}"))


def allowance(budget: BudgetRow, num_calls: int, unix_s: float, monotonic_s: float) -> Allowance:
    """The allowance of each of `num_calls` calls that begin now."""
    tokens = deadline = None
    if budget.max_output_tokens is not None:
        tokens = max(1, (budget.max_output_tokens - budget.output_tokens) // num_calls)
    if budget.max_seconds is not None and budget.first_call_us is not None:
        deadline = monotonic_s + budget.first_call_us / 1e6 + budget.max_seconds - unix_s
    return Allowance(session_id=budget.session_id, output_tokens=tokens, deadline=deadline)


def refusal(budget: BudgetRow, num_calls: int) -> str:
    """The error message of a used-up budget; it begins like the message by which clients recognise a full context."""
    used = {
        "calls": f"{budget.calls} of {budget.max_calls} calls were made, {num_calls} more asked for",
        "output_tokens": f"{budget.output_tokens} of {budget.max_output_tokens} output tokens were used",
        "seconds": f"its {budget.max_seconds:g} seconds are over" if budget.max_seconds is not None else "",
    }
    return (
        "This model's maximum context length is reached: the budget of this session is used up "
        f"({used[budget.ended_by or 'calls']})."
    )


async def within(pieces: AsyncGenerator[int, None], capture: Capture, allowed: Allowance) -> AsyncGenerator[int, None]:
    """A call's pieces until its allowance is used up, which its finish reason then names."""
    async with contextlib.aclosing(pieces):
        while True:
            limit = asyncio.timeout_at(allowed.deadline and _loop_time(allowed.deadline))
            try:
                async with limit:
                    num_new = await anext(pieces)
            except StopAsyncIteration:
                break
            except TimeoutError:
                if not limit.expired():
                    raise
                capture.finish = Finish(type="length", matched=ENDED + "seconds")
                return
            yield num_new
    finish, tokens = capture.finish, allowed.output_tokens
    if finish is not None and finish.type == "length" and tokens is not None and len(capture.ids) >= tokens:
        capture.finish = Finish(type="length", matched=ENDED + "output_tokens")


def _loop_time(monotonic_s: float) -> float:
    return asyncio.get_running_loop().time() + monotonic_s - time.monotonic()
