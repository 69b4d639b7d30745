"""The errors of this part.

KernelEvalError
├── SandboxUnavailable      the machine cannot contain a candidate as `min_sandbox` asks; the server does not start
├── UnknownReward           kernel_eval.reward names nothing that can be found; the server does not start
├── InsecureBinding         an address that others can reach, without a key; the server does not start
├── AddressUnavailable      its address cannot be listened on, or another has the port; the server does not start
├── TooFewFiles             this process may not open as many files as its slots take; the server does not start
├── RayUnavailable          no Ray, or no cluster at the address; the server does not start
├── NoSuchGpu               no GPU of that number here
├── KernelEvalRejected      the server refused the request itself (HTTP 4xx): the caller is wrong, no retry helps
└── KernelEvalUnavailable   no verdict was reached, and that is not the candidate's doing; never a reward
    └── KernelUnsupported   this server cannot judge such a kernel or task at all; no retry helps, leave the sample out
"""

from __future__ import annotations


class KernelEvalError(Exception):
    """Base of everything that this part raises on purpose; `exit_code` is the status that a command ends with."""

    exit_code = 1


class SandboxUnavailable(KernelEvalError):
    """The sandbox level in force would be lower than the configured one."""

    exit_code = 2


class UnknownReward(KernelEvalError):
    """The setting `reward` is neither a known name nor an import path."""

    exit_code = 2


class InsecureBinding(KernelEvalError):
    """The server was asked to listen beyond loopback without an API key."""

    exit_code = 2


class AddressUnavailable(KernelEvalError):
    """The server cannot listen where it is to."""

    exit_code = 2


class TooFewFiles(KernelEvalError):
    """The limit on open files is too low for the server, and cannot be raised by it."""

    exit_code = 2


class RayUnavailable(KernelEvalError):
    """kernel_eval.ray names a cluster that cannot be joined."""

    exit_code = 2


class NoSuchGpu(KernelEvalError):
    """A GPU was asked for that this machine does not have."""


class KernelEvalRejected(KernelEvalError):
    """The server answered 4xx: the request is malformed or the key is wrong."""

    exit_code = 2


class KernelEvalUnavailable(KernelEvalError):
    """The server could not be reached, or failed; the evaluation may be asked for again later."""


class KernelUnsupported(KernelEvalUnavailable):
    """The server works, but cannot judge this: no such device, or the interpreter would be silently wrong."""
