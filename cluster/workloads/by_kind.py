"""The workload that a description names."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path

from weir.cluster.description import WorkloadSection
from weir.cluster.errors import ClusterInvalid
from weir.cluster.workloads.episode import Episode, Episodes
from weir.cluster.workloads.laws import agent_sessions, single_turns
from weir.cluster.workloads.sessions import read_store
from weir.cluster.workloads.traces import read_azure, read_mooncake

RECORDED: dict[str, Callable[[Path], list[Episode]]] = {
    "mooncake": read_mooncake,
    "azure": read_azure,
    "store": read_store,
}


def samples(section: WorkloadSection) -> Episodes:
    """Episodes without end, for samples: by the law, or those that were recorded, again and again.

    Raises:
        ClusterInvalid: A trace or store is named without its path, or shared prefixes are asked of what has none.
        TraceInvalid: The trace or store cannot be read or is empty.
    """
    if section.kind in RECORDED or section.shared_prefixes:
        return itertools.cycle(_recorded(section))
    return agent_sessions(section) if section.kind == "agents" else single_turns(section)


def arrivals(section: WorkloadSection) -> Iterable[Episode]:
    """Episodes that come by themselves, by their recorded arrival.

    Raises:
        ClusterInvalid: The workload has no arrivals: it is a law of lengths, or has no path.
        TraceInvalid: The trace or store cannot be read or is empty.
    """
    if section.kind not in RECORDED:
        known = ", ".join(RECORDED)
        raise ClusterInvalid(f"online traffic of kind {section.kind!r} has no arrival times; kinds that have: {known}")
    return _recorded(section)


def _recorded(section: WorkloadSection) -> list[Episode]:
    if section.shared_prefixes and section.kind != "mooncake":
        raise ClusterInvalid(
            "shared_prefixes is for workloads of kind 'mooncake', whose hash_ids say what prompts share; "
            f"{section.kind!r} does not say it: remove shared_prefixes"
        )
    if section.path is None:
        raise ClusterInvalid(f"workload of kind {section.kind!r} needs `path`")
    read = functools.partial(read_mooncake, prefixes=True) if section.shared_prefixes else RECORDED[section.kind]
    return read(Path(section.path))
