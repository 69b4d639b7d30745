"""Errors of the cluster part.

ClusterError
├── ClusterInvalid    a description of a cluster, a workload or a table of costs that cannot be meant
├── TraceInvalid      a file that is no trace in the format that was named
├── PolicyFault       a policy asked for what its host cannot do: a bug of the policy
└── RoundRefused      settings or data are wrong, so that no round can be trained
"""

from __future__ import annotations


class ClusterError(Exception):
    """Base of all errors of this part."""

    exit_code = 1


class ClusterInvalid(ClusterError):
    """A description of a cluster, a workload or a table of costs that cannot be meant."""

    exit_code = 2


class TraceInvalid(ClusterError):
    """A file that is no trace in the format that was named."""


class PolicyFault(ClusterError):
    """A policy asked for what its host cannot do."""


class RoundRefused(ClusterError):
    """No round can be trained, however often it is tried; the message says what is wrong."""

    exit_code = 2
