"""Runs groups: several sessions of one agent for each task, registered and finished at the proxy.

Invariants: a registered session is finished exactly once, whatever its agent does: "done" with the agent's info, or
"failed" with the error, or "aborted". At most `concurrency` agents run at a time. No group starts after `stop` is set
or without a permit. Nothing here judges; rewards that an agent returns with its info are posted before its session is
finished.
"""

from __future__ import annotations

import asyncio
import itertools
import pkgutil
import random
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from weir.agents.agent_task import Task, as_registered
from weir.agents.config import AgentsConfig
from weir.agents.control import ControlClient, Registered
from weir.agents.errors import AgentImportError, AgentsError

# task, base_url, api_key, config → the session's info; its "rewards", name → number, go to the store
Agent = Callable[[Any, str, str, AgentsConfig], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOutcome:
    """One session: the agent's info, or the class and message of its error."""

    session_id: str | None  # None where registration failed
    task_id: str
    info: dict[str, Any]
    failure: str | None = None  # the error's class
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOutcome:
    """One group, after all of its sessions ended."""

    group_id: str
    task_id: str
    position: int  # in the order of the run
    sessions: list[SessionOutcome]
    aborted: bool = False  # from outside; sessions that it ended are not among the others


@dataclass(slots=True)
class RunSummary:
    """Counts over finished groups."""

    groups: int = 0
    sessions: int = 0
    calls: int = 0  # the turns that agents reported
    correct: int = 0  # sessions whose agent saw a correct answer
    seconds: float = 0.0
    rewards: dict[str, list[float]] = field(default_factory=dict)  # what agents' rewards were, by name
    limits: Counter[str] = field(default_factory=Counter)  # limits that commands exceeded
    sandboxes: Counter[str] = field(default_factory=Counter)  # sessions by the level that contained their command
    failures: Counter[str] = field(default_factory=Counter)  # by the error's class
    first_error: str | None = None  # its message, or its class without one

    def add(self, group: GroupOutcome) -> None:
        """Count a finished group."""
        self.groups += 1
        for session in group.sessions:
            self.sessions += 1
            self.calls += int(session.info.get("turns", 0))
            self.correct += session.info.get("correct") is True
            for name, value in session.info.get("rewards", {}).items():
                self.rewards.setdefault(name, []).append(value)
            if (limit := session.info.get("ended_by")) is not None:
                self.limits[limit] += 1
            if (level := session.info.get("sandbox")) is not None:
                self.sandboxes[level] += 1
            if session.failure is not None:
                self.failures[session.failure] += 1
                self.first_error = self.first_error or session.error or session.failure


class Aborts:
    """The groups of a run that can be ended from outside, without their answers."""

    def __init__(self) -> None:
        self._sessions: dict[str, list[asyncio.Task[SessionOutcome]]] = {}
        self.aborted: set[str] = set()

    def enter(self, group_id: str, sessions: list[asyncio.Task[SessionOutcome]]) -> None:
        """A group runs."""
        self._sessions[group_id] = sessions

    def leave(self, group_id: str) -> None:
        """A group has ended."""
        self._sessions.pop(group_id, None)

    def abort(self, group_id: str) -> None:
        """End the agents of a group, and finish its sessions as `aborted`; one that does not run is left alone."""
        for session in self._sessions.get(group_id, ()):
            self.aborted.add(group_id)
            session.cancel()


async def run_groups(
    tasks: Sequence[Task],
    agent: Agent,
    control: ControlClient,
    config: AgentsConfig,
    *,
    num_groups: int | None = None,
    seed: int = 0,
    stop: asyncio.Event | None = None,
    permits: asyncio.Semaphore | None = None,
    trainable: bool = True,
    metadata: Mapping[str, Any] | None = None,
    done: Container[int] = (),
    on_group: Callable[[int, str], None] | None = None,
    on_session: Callable[[SessionOutcome], None] | None = None,
    aborts: Aborts | None = None,
) -> AsyncIterator[GroupOutcome]:
    """Run groups over `tasks` and yield each one when its last session has ended.

    Tasks are drawn in a new shuffled order after all have been used: `num_groups` in total, or endlessly where it is
    None. Setting `stop` ends the run after the running groups; closing the iterator cancels them. With `permits`, every
    group takes a permit before it starts, and the caller releases one for each group that it has processed. With
    `trainable=False` sessions get no group size, so that no round claims them, and count as held out. Groups at the
    positions in `done` are left out. `metadata` is kept with each session; `on_group` gets position and id of a group
    that starts, and `aborts` ends groups. Raises `AgentsError` without tasks.
    """
    given = dict(metadata or {})
    runner = _Runner(agent, control, config, trainable, given, on_group, on_session, aborts or Aborts())
    ended: asyncio.Queue[GroupOutcome | None] = asyncio.Queue()
    numbered = itertools.islice(enumerate(sample_tasks(tasks, seed)), num_groups)
    order = ((position, task) for position, task in numbered if position not in done)
    dispatching = asyncio.create_task(_dispatch(order, runner, ended, stop or asyncio.Event(), permits))
    try:
        while (group := await ended.get()) is not None:
            yield group
        await dispatching
    finally:
        dispatching.cancel()
        await asyncio.gather(dispatching, return_exceptions=True)


def sample_tasks(tasks: Sequence[Task], seed: int) -> Iterator[Task]:
    """Endless tasks: all of them in an order drawn from `seed`, then in another. Raises `AgentsError` without tasks."""
    if not tasks:
        raise AgentsError("there are no tasks to run; name a folder of tasks that has some")
    draw = random.Random(seed)
    while True:
        yield from draw.sample(tasks, len(tasks))


def import_agent(path: str) -> Agent:
    """The agent named by `module:function`. Raises `AgentImportError`."""
    try:
        if ":" not in path:
            raise ValueError("there is no colon in it")
        agent = pkgutil.resolve_name(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise AgentImportError(
            f"cannot import the agent {path!r} ({error}); expected module:function, e.g. weir.agents.kernel_agent:solve"
        ) from error
    if not callable(agent):
        raise AgentImportError(f"the agent {path!r} is a {type(agent).__name__}; expected an async function")
    return agent  # type: ignore[no-any-return]


async def _dispatch(
    order: Iterator[tuple[int, Task]],
    runner: _Runner,
    ended: asyncio.Queue[GroupOutcome | None],
    stop: asyncio.Event,
    permits: asyncio.Semaphore | None,
) -> None:
    """Start groups as slots and permits allow; put None into the queue after the last group."""
    open_groups = asyncio.Semaphore(runner.most_open_groups)

    async def run_one(position: int, task: Task) -> None:
        try:
            ended.put_nowait(await runner.run_group(position, task))
        finally:
            open_groups.release()

    try:
        async with asyncio.TaskGroup() as running:
            for position, task in order:
                if not await _acquire(open_groups, stop) or not (permits is None or await _acquire(permits, stop)):
                    break
                running.create_task(run_one(position, task))
    finally:
        ended.put_nowait(None)


async def _acquire(semaphore: asyncio.Semaphore, stop: asyncio.Event) -> bool:
    """Acquire `semaphore`; False where `stop` is set first."""
    if stop.is_set():
        return False
    acquiring = asyncio.create_task(semaphore.acquire())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({acquiring, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return acquiring.done() and not stop.is_set()
    finally:
        acquiring.cancel()
        stopping.cancel()


class _Runner:
    """Runs the sessions of one run within its concurrency."""

    def __init__(
        self,
        agent: Agent,
        control: ControlClient,
        config: AgentsConfig,
        trainable: bool,
        metadata: dict[str, Any],
        on_group: Callable[[int, str], None] | None,
        on_session: Callable[[SessionOutcome], None] | None,
        aborts: Aborts,
    ) -> None:
        self._agent = agent
        self._aborts = aborts
        self._control = control
        self._config = config
        self._trainable = trainable
        self._metadata = metadata
        self._on_group = on_group
        self._on_session = on_session
        self._slots = asyncio.Semaphore(config.concurrency)
        self.most_open_groups = -(-config.concurrency // config.samples) + 1

    async def run_group(self, position: int, task: Task) -> GroupOutcome:
        group_id = f"group_{uuid.uuid4().hex}"
        if self._on_group is not None:
            self._on_group(position, group_id)
        async with asyncio.TaskGroup() as running:
            sessions = [
                running.create_task(self._run_session(task, group_id, number)) for number in range(self._config.samples)
            ]
            self._aborts.enter(group_id, sessions)
        self._aborts.leave(group_id)
        return GroupOutcome(
            group_id=group_id,
            task_id=task.task_id,
            position=position,
            sessions=[session.result() for session in sessions if not session.cancelled()],
            aborted=group_id in self._aborts.aborted,
        )

    async def _run_session(self, task: Task, group_id: str, number: int) -> SessionOutcome:
        async with self._slots:
            outcome = await self._outcome(task, group_id, number)
        if self._on_session is not None:
            self._on_session(outcome)
        return outcome

    async def _outcome(self, task: Task, group_id: str, number: int) -> SessionOutcome:
        started = time.monotonic()
        try:
            session = await self._control.register(
                group_id=group_id,
                task=as_registered(task) | ({} if self._trainable else {"split": "heldout"}),
                group_size=self._config.samples if self._trainable else None,
                metadata={
                    "agent": self._config.command or self._config.agent,
                    "task_id": task.task_id,
                    "split": task.split,
                }
                | self._metadata,
            )
        except AgentsError as error:
            return _failed(None, task, {}, error)
        outcome = await self._run_agent(task, session, number)
        info = outcome.info | {"seconds": round(time.monotonic() - started, 3)}
        status = "done" if outcome.failure is None else "failed"
        try:
            await self._control.reward(session.session_id, outcome.info.get("rewards", {}))
            await self._control.finish(session.session_id, status=status, info=info)
        except AgentsError as error:
            return _failed(session.session_id, task, outcome.info, error)
        return outcome

    async def _run_agent(self, task: Task, registered: Registered, number: int) -> SessionOutcome:
        """Run the agent; its exception is recorded as the session's failure and never ends the run."""
        config, seed = self._config, self._config.sampling_seed
        if seed is not None:
            config = config.model_copy(update={"sampling_seed": seed + number})
        try:
            info = await self._agent(task, registered.base_url, registered.api_key, config)
        except asyncio.CancelledError:
            await self._finish_cancelled(registered, aborted=registered.group_id in self._aborts.aborted)
            raise
        except Exception as error:
            return _failed(registered.session_id, task, {"failure": type(error).__name__, "error": str(error)}, error)
        return SessionOutcome(session_id=registered.session_id, task_id=task.task_id, info=info)

    async def _finish_cancelled(self, registered: Registered, *, aborted: bool) -> None:
        """Finish a cancelled session within one time limit, so that stopping does not wait for a dead proxy."""
        why = "enough other groups were complete" if aborted else "the run was stopped"
        info = {"failure": "Aborted" if aborted else "Cancelled", "error": why}
        with suppress(AgentsError, TimeoutError):
            async with asyncio.timeout(self._config.control_timeout_s):
                status = "aborted" if aborted else "failed"
                await self._control.finish(registered.session_id, status=status, info=info)


def _failed(session_id: str | None, task: Task, info: dict[str, Any], error: Exception) -> SessionOutcome:
    return SessionOutcome(
        session_id=session_id, task_id=task.task_id, info=info, failure=type(error).__name__, error=str(error)
    )
