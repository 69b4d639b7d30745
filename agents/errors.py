"""Errors of the agents' side, named for the boundary that failed.

AgentsError
├── TaskError          a task file or folder is not what `load_tasks` reads (exit 2)
├── OtherRun           what `weir sft-data` began is of other pairs or settings (exit 2)
├── AgentImportError   `--agent` names nothing that can be called (exit 2)
├── ProxyUnavailable   the proxy's control routes did not answer, retries included (exit 1)
└── ProxyRefused       they answered with a refusal; trying again would not help (exit 1)
"""

from __future__ import annotations


class AgentsError(Exception):
    """Base of what this part raises; `exit_code` is the status that a command ends with."""

    exit_code = 1


class TaskError(AgentsError, ValueError):
    """A task cannot be read; the message names the file and what was expected in it."""

    exit_code = 2


class OtherRun(AgentsError, ValueError):
    """A journal was begun with other pairs or settings than it is to be continued with."""

    exit_code = 2


class AgentImportError(AgentsError, ValueError):
    """An agent's import path is wrong; the message gives the form that works."""

    exit_code = 2


class ProxyUnavailable(AgentsError):
    """The proxy could not be reached, or answered 5xx, until the retries were used up."""


class ProxyRefused(AgentsError):
    """The proxy refused a control request (4xx); `status` is its HTTP status."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status
