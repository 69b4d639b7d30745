"""Rewards from a command that runs contained in the working folder, beside hidden files that the agent never saw.

Invariant: what the agent's code can make the command do ends with a number, at worst 0: an exit code, a missing or
broken report, an exceeded limit. Only a command that cannot be started at all is an outage. Not contained: tests that
import the agent's code run in one process with it, so that this code can change what the tests report.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping

from weir.agents.agent_task import RewardSpec
from weir.agents.command.contained import Command, run_contained
from weir.agents.command.enclosure import Enclosure
from weir.agents.command.launcher import NOT_STARTED
from weir.agents.command.limits import CommandEnd, CommandLimits
from weir.agents.command.session_folder import SessionFolder, read_beneath
from weir.agents.command.watch import Watch
from weir.agents.config import AgentsConfig
from weir.agents.errors import RewardFailed
from weir.agents.rewards.junit import MOST_BYTES, passed_share


async def command_reward(
    name: str,
    spec: RewardSpec,
    folder: SessionFolder,
    config: AgentsConfig,
    enclosure: Enclosure,
    watch: Watch,
    environment: Mapping[str, str],
    work: str,
) -> float:
    """Run the command; its result as a number. Raises `RewardFailed` where the shell does not know the command."""
    assert spec.command is not None
    report = f".weir-junit-{secrets.token_hex(8)}.xml"
    command = Command(
        argv=("/bin/sh", "-c", spec.command), environment={**environment, "WEIR_JUNIT": f"{work}/{report}"}
    )
    limits = CommandLimits.of(config, spec.timeout_s)
    output = folder.path / f"reward-{name}.txt"
    end = await run_contained(command, folder, enclosure, limits, watch, output)
    if end.exit_code == NOT_STARTED and end.ended_by is None:
        raise RewardFailed(f"the command of the reward {name} is not found in the sandbox: {end.tail[-300:]!r}")
    if spec.result == "exit_code":
        return 1.0 if end.exit_code == 0 and end.ended_by is None else 0.0
    if spec.result == "number":
        return _last_number(end)
    content = read_beneath(folder.work, report, MOST_BYTES)
    try:
        return 0.0 if content is None or end.ended_by is not None else passed_share(content, spec.num_tests)
    except ValueError:  # the code under test wrote over it
        return 0.0


def _last_number(end: CommandEnd) -> float:
    """The number in the last line; 0 without one, since the agent's code may have kept the command from printing it."""
    last = end.tail.splitlines()[-1].split() if end.tail else []
    try:
        value = float(last[-1]) if last else 0.0
    except ValueError:
        return 0.0
    return value if math.isfinite(value) and end.ended_by is None else 0.0
