"""Errors of agents and their data, named for the boundary that failed.

AgentsError
├── TaskError          a task file or folder is not what `load_tasks` reads (exit 2)
├── OtherRun           an unfinished `weir sft-data` had other pairs or settings (exit 2)
├── AgentImportError   `--agent` names nothing that can be called (exit 2)
├── CommandRefused     `--agent-command` cannot be started as it is written (exit 2)
├── AgentSandboxUnavailable  agents cannot be contained here as the settings ask (exit 1)
├── AgentFailed        a command made no call, or the proxy could not be reached from it (exit 1)
├── SetupFailed        a task's setup command failed (exit 1)
├── RewardFailed       a task's reward could not be found; it is no reward of 0 (exit 1)
├── ProxyUnavailable   the proxy's control routes did not answer, after all retries (exit 1)
└── ProxyRefused       the proxy refused a request; a retry would not help (exit 1)
"""

from __future__ import annotations


class AgentsError(Exception):
    """Base of this part's errors; `exit_code` is the status that a command ends with."""

    exit_code = 1


class TaskError(AgentsError, ValueError):
    """A task cannot be read; the message names the file and what was expected in it."""

    exit_code = 2


class OtherRun(AgentsError, ValueError):
    """A journal belongs to a run with other pairs or settings."""

    exit_code = 2


class AgentImportError(AgentsError, ValueError):
    """An agent's import path is wrong; the message gives the expected form."""

    exit_code = 2


class CommandRefused(AgentsError, ValueError):
    """The agent's command line is wrong; the message says what was expected in it."""

    exit_code = 2


class AgentSandboxUnavailable(AgentsError):
    """Processes cannot be contained on this machine at the level that the settings ask for."""


class AgentFailed(AgentsError):
    """An agent's command ended without a call that the proxy accepted."""


class SetupFailed(AgentsError):
    """The setup command of a task did not end with exit code 0."""


class RewardFailed(AgentsError):
    """The reward of a session could not be computed: an outage or a fault of the task, not of the agent."""


class ProxyUnavailable(AgentsError):
    """The proxy could not be reached, or answered 429 or 5xx, in all attempts."""


class ProxyRefused(AgentsError):
    """The proxy refused a control request (4xx); `status` is its HTTP status."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status
