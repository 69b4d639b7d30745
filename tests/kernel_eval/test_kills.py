"""Processes of a server are killed with -9 while it evaluates, and every verdict stays the same.

WEIR_TEST_KILLS sets how often the round of kills is repeated."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from weir.kernel_eval.protocol import Fault

Read = Callable[[str], str]
ROUNDS = int(os.environ.get("WEIR_TEST_KILLS", "1"))  # each kind of process, again and again
WORKERS, COMPILERS, JUDGES = 0, 1, 3  # forkservers; server/test_app.py kills the workers' one
NUM_FORKSERVERS = 4
OPERATION = "tl.maximum(x, 0.0)"
RETURN = "        return out"
# what the relu candidate has, what stands there instead, and the verdict
CANDIDATES: list[tuple[str, str, Fault | None]] = [
    (OPERATION, OPERATION, None),
    (RETURN, "        import time; time.sleep(0.2)\n" + RETURN, None),
    (OPERATION, "tl.minimum(x, 0.0)", Fault.OUTPUT_MISMATCH),
    (OPERATION, "tl.no_such_function(x)", Fault.TRITON_COMPILE_ERROR),
    (RETURN, "        return torch.relu(x)", Fault.REWARD_HACK),
    (RETURN, "        import os; os._exit(0)", Fault.EARLY_EXIT),
]


def children(pid: int) -> list[int]:
    found: list[int] = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, listing.read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def is_bubblewrap(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].endswith(b"bwrap")
    except (FileNotFoundError, ProcessLookupError):
        return False


def forkserver_at(pid: int) -> int:
    """The forkserver below the started process `pid`, which is bubblewrap's if that is used."""
    while is_bubblewrap(pid) and (below := children(pid)):
        pid = below[0]
    return pid


async def kill_one(http: httpx.AsyncClient, number: int, *, forked: bool) -> None:
    """Kill a forkserver, or its newest child as soon as it has one."""
    while True:
        state = (await http.get("/health")).json()
        pid = forkserver_at(state["zygotes"][number]["pid"]) if state["ready"] else None
        victim = pid if pid is None or not forked else max(children(pid), default=None)
        if victim is not None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(victim, signal.SIGKILL)
                return
        await asyncio.sleep(0.002)


async def evaluate_under_fire(url: str, bodies: list[tuple[dict[str, Any], Any]], chance: random.Random) -> list[Any]:
    """Two evaluations at a time, each hit once at most; expected faults, with the replies."""
    victims = [(COMPILERS, False), (JUDGES, False), *[(number, True) for number in range(NUM_FORKSERVERS)] * 2]
    victims = chance.sample(victims, len(victims)) * ROUNDS
    under_way: set[asyncio.Task[httpx.Response]] = set()
    answers = []
    over = False
    async with httpx.AsyncClient(base_url=url, timeout=None, trust_env=False) as http:

        async def evaluate() -> None:
            while not over:
                body, fault = chance.choice(bodies)
                asking = asyncio.create_task(http.post("/eval", json=body))
                under_way.add(asking)
                answers.append((fault, (await asking).json()))
                under_way.remove(asking)

        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(evaluate())
            for number, forked in victims:
                await kill_one(http, number, forked=forked)
                for _ in range(2):  # also those that begin before the server has noticed
                    await asyncio.wait(set(under_way))
            over = True
    return answers


def test_a_worker_that_is_killed_in_every_attempt_is_nobodys_reward(start_server: Any, read_example: Read) -> None:
    """A kill from outside, which the candidate could not cause, is a fault of the server, also the second time."""
    waits = read_example("relu_candidate").replace(RETURN, "        import time; time.sleep(1)\n" + RETURN)
    body = {"original_model_src": read_example("relu_task"), "custom_model_src": waits}

    async def ask(url: str) -> dict[str, Any]:
        async with httpx.AsyncClient(base_url=url, timeout=None, trust_env=False) as http:
            asking = asyncio.create_task(http.post("/eval", json=body))
            while not asking.done():
                killing = asyncio.create_task(kill_one(http, WORKERS, forked=True))
                await asyncio.wait({asking, killing}, return_when=asyncio.FIRST_COMPLETED)
                killing.cancel()
            reply: dict[str, Any] = (await asking).json()
            return reply

    with start_server(sandbox="bubblewrap", call_timeout_s=60.0) as server:
        reply = asyncio.run(ask(server.url))
    assert (reply["fault"], reply["raw_reward"]) == (Fault.SERVER_ERROR, None), reply


def test_processes_that_are_killed_change_no_verdict(start_server: Any, read_example: Read) -> None:
    with start_server(concurrency=2) as server:
        relu = read_example("relu_candidate")
        bodies = [
            (
                {
                    "original_model_src": read_example("relu_task"),
                    "custom_model_src": relu.replace(old, new),
                    "num_correct_trials": 2,
                },
                fault,
            )
            for old, new, fault in CANDIDATES
        ]
        answers = asyncio.run(evaluate_under_fire(server.url, bodies, random.Random(ROUNDS)))
        wrong = [(fault, reply["fault"], reply["fault_message"]) for fault, reply in answers if reply["fault"] != fault]
        assert not wrong, (len(answers), wrong)
