"""The best kernels of a store, judged once more with a third compilation from their source alone.

Invariant: a finalist is a recorded answer whose stored verdict is "correct"; of one group the larger reward wins, then
the larger speedup, then the earlier call. Nothing is written: rewards and verdicts stay as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from weir.kernel_eval.client import EvalResult, KernelEvalClient, KernelTask, KernelUnsupported, candidate_source
from weir.store.config import StoreConfig
from weir.store.reader import connect, load_calls

SAME = "same"
_AT_ONCE = 8
_QUERY = """
SELECT call_id, session_id, e.group_id, raw_reward, task
FROM evaluations e JOIN groups USING (group_id)
WHERE correct AND ($round IS NULL OR e.round_id = $round)
QUALIFY row_number() OVER (PARTITION BY e.group_id ORDER BY raw_reward DESC, speedup DESC NULLS LAST, call_id) <= $best
ORDER BY e.group_id, raw_reward DESC, call_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalist:
    """A recorded answer that was judged correct."""

    group_id: str
    call_id: str
    reward: float
    task: KernelTask
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the judge says now. `recompiled` is "same", or why nothing was shown, or what was refused."""

    finalist: Finalist
    confirmed: bool
    refused: bool
    recompiled: str


def finalists(store: StoreConfig, *, best: int, round_id: int | None = None) -> list[Finalist]:
    """The best correct answers of each group, of one round or of all."""
    with connect(store) as connection:
        rows = connection.execute(_QUERY, {"best": best, "round": round_id}).fetchall()
    sessions = sorted({session_id for _, session_id, *_ in rows})
    calls = {call.call_id: call for of_one in load_calls(store, sessions).values() for call in of_one}
    found = []
    for call_id, _, group_id, reward, raw_task in rows:
        task = msgspec.json.decode(raw_task, type=KernelTask)
        source = candidate_source(task, calls[call_id].answer_text)
        found.append(Finalist(group_id=group_id, call_id=call_id, reward=reward, task=task, source=source))
    return found


async def judge_again(client: KernelEvalClient, found: Sequence[Finalist], num_trials: int) -> list[Verdict]:
    """The verdict on each, in order. Raises `KernelEvalUnavailable` and `KernelEvalRejected`."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def judge(finalist: Finalist) -> Verdict:
        async with slots:
            try:
                result = await client.evaluate(
                    finalist.task, finalist.source, num_correct_trials=num_trials, recompile=True
                )
            except KernelUnsupported as error:
                return Verdict(finalist=finalist, confirmed=False, refused=False, recompiled=f"not shown: {error}")
        return _verdict(finalist, result)

    return await asyncio.gather(*map(judge, found))


def _verdict(finalist: Finalist, result: EvalResult) -> Verdict:
    said = f"{result.fault}: {result.fault_message}"
    if result.correct:
        on_gpu = result.mode == "gpu"  # whose proof always compiles from source
        said = SAME if on_gpu else str(result.details.get("recompiled", "not shown: the server does not recompile"))
    return Verdict(finalist=finalist, confirmed=said == SAME, refused=not result.correct, recompiled=said)
