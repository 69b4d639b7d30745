"""Makes chat examples for a cold start from pairs of PyTorch and Triton sources that the judge finds correct.

Prompts, answers and feedback have the example agent's form. With two turns, an answer with one injected mistake and the
judge's real feedback on it come before the correct answer. Invariants: every pair becomes an example or a drop with a
reason; an unavailable judge ends the run and drops nothing.
"""

from __future__ import annotations

import asyncio
import enum
import hashlib
from collections.abc import AsyncGenerator, Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from weir.agents.corpus import Message
from weir.agents.kernel_agent import first_message
from weir.agents.kernelbook import NotAPair, Pair, Row, pair_of
from weir.agents.mistakes import mistakes
from weir.kernel_eval.client import (
    EvalResult,
    Fault,
    KernelEvalClient,
    KernelTask,
    KernelUnsupported,
    TaskCheck,
    feedback,
)

PROMPT = "Write a Triton kernel for {name}."
_MISTAKES_TRIED = 4


class Reason(enum.StrEnum):
    """Why a pair was dropped."""

    NOT_A_PAIR = "not_a_pair"  # the row does not have the form
    DUPLICATE = "duplicate"  # of the two sources of an earlier pair
    TOO_LONG = "too_long"
    TASK = "task_not_judgeable"
    UNSUPPORTED = "unsupported"  # cannot be judged on this machine
    WRONG = "wrong"  # the judge found a fault
    SLOWER = "slower"  # than the reference, on a device


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A line for `weir sft`; the fields other than messages are provenance."""

    messages: list[Message]
    pair_id: str
    origin: dict[str, Any]
    speedup: float | None  # over the reference; None: not measured, without a device


class Drop(msgspec.Struct, frozen=True, kw_only=True):
    """A pair that was dropped."""

    pair_id: str
    reason: Reason
    detail: str = ""  # of TASK the problem, of WRONG the fault
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The form of the examples, and how they are judged."""

    num_turns: int = 1  # 2: with a mistake and its feedback first, where one has an effect
    max_tokens: int | None = None
    relax_rules: tuple[str, ...] = ()
    num_trials: int = 3
    feedback_lines: int = 16
    seed: int = 0
    at_once: int = 16


class SftData:
    """Turns rows into examples. `length` counts the tokens of a conversation; needed with `max_tokens`."""

    def __init__(
        self, judge: KernelEvalClient, wanted: Wanted, length: Callable[[Sequence[Message]], int] | None = None
    ) -> None:
        self._judge = judge
        self._wanted = wanted
        self._length = length

    async def convert(
        self, rows: Iterable[tuple[str, Row | NotAPair]], done: Container[int] = ()
    ) -> AsyncGenerator[tuple[int, Example | Drop], None]:
        """Numbers of rows (from 0) and their outcomes, in the order of completion, without the rows in `done`.

        Raises `KernelEvalUnavailable`. Closing the generator cancels pending work.
        """
        todo = enumerate(self._pairs(rows))
        running: dict[asyncio.Task[Example | Drop], int] = {}
        try:
            while True:
                while len(running) < self._wanted.at_once and (following := next(todo, None)) is not None:
                    number, pair = following
                    if number not in done:
                        running[asyncio.create_task(self._outcome(pair))] = number
                if not running:
                    return
                ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for one in ended:
                    yield running.pop(one), one.result()
        finally:
            for one in running:
                one.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _pairs(self, rows: Iterable[tuple[str, Row | NotAPair]]) -> Iterator[Pair | Drop]:
        seen: set[bytes] = set()
        for pair_id, row in rows:
            try:
                if isinstance(row, NotAPair):
                    raise row
                pair = pair_of(pair_id, row)
            except NotAPair as error:
                yield Drop(pair_id=pair_id, reason=Reason.NOT_A_PAIR, message=str(error))
                continue
            content = hashlib.sha256(msgspec.msgpack.encode([pair.reference_src, pair.candidate_src])).digest()
            if content in seen:
                yield Drop(pair_id=pair_id, reason=Reason.DUPLICATE, message="an earlier pair has the same sources")
            else:
                yield pair
            seen.add(content)

    async def _outcome(self, pair: Pair | Drop) -> Example | Drop:
        if isinstance(pair, Drop):
            return pair
        try:
            return await self._example(pair)
        except _Dropped as drop:
            return Drop(pair_id=pair.pair_id, reason=drop.reason, detail=drop.detail, message=drop.message)
        except KernelUnsupported as error:
            return Drop(pair_id=pair.pair_id, reason=Reason.UNSUPPORTED, message=str(error))

    async def _example(self, pair: Pair) -> Example:
        task = task_of(pair, self._wanted.relax_rules)
        messages = [Message("user", first_message(task)), Message("assistant", fenced(pair.candidate_src))]
        self._check_length(messages)
        _check_task(await self._judge.check_task(task))
        speedup = _check_right(await self._judged(task, pair.candidate_src))
        if self._wanted.num_turns > 1:
            messages = await self._with_a_mistake(task, pair, messages)
        return Example(messages=messages, pair_id=pair.pair_id, origin=pair.origin, speedup=speedup)

    async def _with_a_mistake(self, task: KernelTask, pair: Pair, messages: list[Message]) -> list[Message]:
        """The messages with a wrong answer and its feedback first; unchanged without a mistake that shows and fits."""
        for spoiled in mistakes(pair.candidate_src, self._wanted.seed)[:_MISTAKES_TRIED]:
            result = await self._judged(task, spoiled)
            if result.correct or result.fault in (Fault.REWARD_HACK, Fault.SANDBOX_VIOLATION):
                continue
            shown = "\n".join(feedback(result).splitlines()[: self._wanted.feedback_lines])
            longer = [messages[0], Message("assistant", fenced(spoiled)), Message("user", shown), messages[1]]
            try:
                self._check_length(longer)
            except _Dropped:
                continue
            return longer
        return messages

    async def _judged(self, task: KernelTask, candidate_src: str) -> EvalResult:
        return await self._judge.evaluate(
            task,
            candidate_src,
            seed=self._wanted.seed,
            num_correct_trials=self._wanted.num_trials,
            use_cache=True,
            measure_performance=True,
        )

    def _check_length(self, messages: Sequence[Message]) -> None:
        if self._wanted.max_tokens is None or self._length is None:
            return
        length = self._length(messages)
        if length > self._wanted.max_tokens:
            raise _Dropped(Reason.TOO_LONG, "", f"{length} tokens, more than {self._wanted.max_tokens}")


def task_of(pair: Pair, relax_rules: Sequence[str] = ()) -> KernelTask:
    """The task that a pair answers."""
    return KernelTask(
        task_id=f"kernelbook_{pair.pair_id}",
        prompt=PROMPT.format(name=pair.origin["entry_point"]),
        reference_src=pair.reference_src,
        family="kernelbook",
        relax_rules=list(relax_rules),
    )


def fenced(source: str) -> str:
    """An answer that consists of a fenced source."""
    return f"```python\n{source.strip()}\n```"


class _Dropped(Exception):
    def __init__(self, reason: Reason, detail: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.detail = detail
        self.message = message


def _check_task(found: TaskCheck) -> None:
    if found.problem is not None:
        raise _Dropped(Reason.TASK, found.problem, found.message)


def _check_right(result: EvalResult) -> float | None:
    """The speedup, if one was measured."""
    if not result.correct:
        raise _Dropped(Reason.WRONG, result.fault or "", result.fault_message or "")
    if result.speedup is not None and result.speedup < 1:
        raise _Dropped(Reason.SLOWER, "", f"{result.speedup:.2f} times as fast as the reference")
    return result.speedup
