"""The demo's agents: endless groups in a process of their own while rounds train, and measuring on held-out tasks.

Invariant: agents are at most as many groups ahead of the trainer as they were given permits: one for each byte on their
standard input. End of input ends them, so they never outlive the demo.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from weir.agents.config import AgentsConfig
from weir.agents.control import ControlClient
from weir.agents.heldout import Measured, measure
from weir.agents.runner import import_agent, run_groups
from weir.agents.tasks import load_tasks
from weir.kernel_eval.client import KernelTask
from weir.scripts.launch.errors import ServerFailed

PERMIT = b"."
STOP_LIMIT_S = 60.0


class BackgroundAgents:
    """The process in which groups run; made by `background_agents`."""

    def __init__(self, process: subprocess.Popen[bytes], log_path: Path) -> None:
        self._process, self._log_path = process, log_path

    def allow(self, num_groups: int) -> None:
        """Let the agents start as many more groups. Raises `ServerFailed` when they have ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(PERMIT * num_groups)
            self._process.stdin.flush()
        if self._process.poll() is not None:
            raise ServerFailed(f"the agents ended with status {self._process.returncode}; see {self._log_path}")


@contextlib.contextmanager
def background_agents(config_path: Path, seed: int, log_path: Path) -> Iterator[BackgroundAgents]:
    """Run groups over the training tasks beside the configuration, until the block is left."""
    argv = [sys.executable, "-m", "weir.scripts.demo_loop.agents", str(config_path), str(seed)]
    with log_path.open("ab") as log:
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield BackgroundAgents(process, log_path)
    finally:
        with contextlib.suppress(BrokenPipeError, subprocess.TimeoutExpired):
            process.communicate(timeout=STOP_LIMIT_S)  # closes their input; groups that are running end first
        process.kill()
        process.wait()


def heldout_correctness(
    tasks: Sequence[KernelTask], config: AgentsConfig, samples: int, on_answer: Callable[[int], None]
) -> float:
    """The share of right answers over `samples` first attempts at every task, sampled at temperature 1.

    `on_answer` gets the number of answers judged so far.
    """
    judged = itertools.count(1)

    async def attempts() -> Measured:
        async with control_client(config) as control:
            return await measure(
                tasks,
                control,
                config.model_copy(update={"samples": samples}),
                on_session=lambda _: on_answer(next(judged)),
            )

    return asyncio.run(attempts()).correct


def control_client(config: AgentsConfig) -> ControlClient:
    """The client of the control routes that the settings name."""
    assert config.proxy_url is not None and config.control_key is not None
    return ControlClient(config.proxy_url, config.control_key.get_secret_value(), config)


async def run_until_end_of_input(tasks: Sequence[KernelTask], config: AgentsConfig, seed: int) -> None:
    """Groups without end, one for each permit."""
    stop, permits = asyncio.Event(), asyncio.Semaphore(0)

    class Permits(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            for _ in data:
                permits.release()

        def connection_lost(self, error: Exception | None) -> None:
            stop.set()
            permits.release()  # the dispatcher waits for one

    await asyncio.get_running_loop().connect_read_pipe(Permits, sys.stdin.buffer)
    async with control_client(config) as control:
        async for group in run_groups(
            tasks, import_agent(config.agent), control, config, seed=seed, stop=stop, permits=permits
        ):
            failed = [session.error for session in group.sessions if session.failure is not None]
            if failed:
                print(f"group {group.group_id}: {len(failed)} sessions failed, the first: {failed[0]}", flush=True)


def main(config_path: Path, seed: int) -> None:
    """The process of the background agents."""
    from weir.scripts.launch.resolve import agents_config
    from weir.scripts.launch.settings import load_settings

    tasks = [task for task in load_tasks(config_path.parent / "tasks") if task.split == "train"]
    asyncio.run(run_until_end_of_input(tasks, agents_config(load_settings(config_path), {}), seed))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
