"""The process in which agents run: groups over tasks in an endless order, one for each permit.

Requests are numbers of further permits, or groups to abort; reports name the groups that start and end. Invariant: a
group that was killed is run again by the next process, as a new one: the journal says which have ended. End of input
ends it, once the groups that run have ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weir.agents.agent_task import Task, load_all_tasks
from weir.agents.config import AgentsConfig
from weir.agents.continuous.journal import RunJournal
from weir.agents.control import ControlClient
from weir.agents.errors import ProxyRefused, ProxyUnavailable
from weir.agents.runner import Aborts, Agent, GroupOutcome, run_groups
from weir.scripts.launch.resolve import agents_config
from weir.scripts.launch.settings import load_settings
from weir.scripts.live.reports import Reports

UNREACHED = {ProxyRefused.__name__, ProxyUnavailable.__name__}


async def run_permitted(
    tasks: Sequence[Task], agent: Agent, config: AgentsConfig, journal: RunJournal, seed: int, reports: Reports
) -> None:
    """Run groups until the end of input."""
    stop, permits, aborts = asyncio.Event(), asyncio.Semaphore(0), Aborts()
    reading = asyncio.create_task(_read_requests(stop, permits, aborts))
    assert config.proxy_url is not None and config.control_key is not None

    def on_group(position: int, group_id: str) -> None:
        journal.start(position, group_id)
        reports.send({"started": group_id})

    async with ControlClient(config.proxy_url, config.control_key.get_secret_value(), config) as control:
        async for group in run_groups(
            tasks,
            agent,
            control,
            config,
            seed=seed,
            stop=stop,
            permits=permits,
            done=journal,
            on_group=on_group,
            aborts=aborts,
        ):
            journal.end(group.position)
            reports.send({"ended": group.group_id, "complete": is_complete(group)})
            if failed := [session.error for session in group.sessions if session.failure is not None]:
                text = f"group {group.group_id}: {len(failed)} sessions failed, the first: {failed[0]}"
                print(text, file=sys.stderr, flush=True)
    await reading


def is_complete(group: GroupOutcome) -> bool:
    """Whether the catalog has the end of every session; one that failed by itself has ended too."""
    return not group.aborted and not any(
        session.session_id is None or session.failure in UNREACHED for session in group.sessions
    )


async def _read_requests(stop: asyncio.Event, permits: asyncio.Semaphore, aborts: Aborts) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    while line := await reader.readline():
        request = json.loads(line)
        if isinstance(request, dict):
            for group_id in request["abort"]:
                aborts.abort(group_id)
            continue
        for _ in range(request):
            permits.release()
    stop.set()


def main(config_path: Path | None, tasks: Path, split: str, seed: int, state: Path, changes: dict[str, Any]) -> None:
    """Run agents over the tasks of a split."""
    from weir.scripts.launch.agents import open_agent, tasks_of_split

    reports = Reports()
    settings = load_settings(config_path)
    chosen = tasks_of_split(load_all_tasks(tasks), split, tasks)
    sys.path.append(str(Path.cwd()))  # the agent's module may be in this folder; last, so that it shadows nothing
    config = agents_config(settings, changes)
    journal = RunJournal(state, chosen, seed=seed, samples=config.samples)
    try:
        asyncio.run(run_permitted(chosen, open_agent(config), config, journal, seed, reports))
    finally:
        journal.close()


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    main(
        Path(options["config"]) if options["config"] else None,
        Path(options["tasks"]),
        options["split"],
        options["seed"],
        Path(options["state"]),
        options["changes"],
    )
