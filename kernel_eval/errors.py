"""The errors of this part.

KernelEvalError
├── SandboxUnavailable      the machine does not reach the level `min_sandbox`; the server does not start
├── UnknownReward           kernel_eval.reward names no known reward function; the server does not start
├── InsecureBinding         an address reachable from other machines, without a key; the server does not start
├── AddressUnavailable      the server cannot listen on its address, or the port is taken; it does not start
├── TooFewFiles             this process may not open as many files as its slots need; the server does not start
├── RayUnavailable          no Ray, or no cluster at the address; the server does not start
├── NoSuchGpu               no GPU of that number here
├── KernelEvalRejected      the server refused the request itself (HTTP 4xx): the caller is at fault, no retry helps
└── KernelEvalUnavailable   no verdict was reached, for a reason other than the candidate; never a reward
    └── KernelUnsupported   this server cannot judge such a kernel or task at all; no retry helps, leave the sample out
"""

from __future__ import annotations


class KernelEvalError(Exception):
    """Base of the errors that this part raises on purpose; `exit_code` is the exit status of a command."""

    exit_code = 1


class SandboxUnavailable(KernelEvalError):
    """The sandbox level in force would be lower than the configured one."""

    exit_code = 2


class UnknownReward(KernelEvalError):
    """The setting `reward` is neither a known name nor an import path."""

    exit_code = 2


class InsecureBinding(KernelEvalError):
    """The server would listen beyond loopback without an API key."""

    exit_code = 2


class AddressUnavailable(KernelEvalError):
    """The server cannot listen on its address."""

    exit_code = 2


class TooFewFiles(KernelEvalError):
    """The limit on open files is too low for the server, and cannot be raised by it."""

    exit_code = 2


class RayUnavailable(KernelEvalError):
    """kernel_eval.ray names a cluster that cannot be joined."""

    exit_code = 2


class NoSuchGpu(KernelEvalError):
    """This machine has no GPU of the requested number."""


class KernelEvalRejected(KernelEvalError):
    """The server answered 4xx: the request is malformed or the key is wrong."""

    exit_code = 2


class KernelEvalUnavailable(KernelEvalError):
    """The server could not be reached, or failed; the evaluation may be repeated later."""


class KernelUnsupported(KernelEvalUnavailable):
    """The server works, but cannot judge this: no such device, or the interpreter lacks what it needs."""
