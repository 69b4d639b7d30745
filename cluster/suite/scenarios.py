"""The clusters and workloads of the suite, and runs of policies on them, each with its best split.

Members are H800s (989 TFLOP/s, 3.35 TB/s, 80 GB) with a 7B model. Costs are the defaults of a description. Every policy
gets the number of training members that suits it best, from the same list of shares. The length law is log-normal with
p99 over p50 about 10, cut off, as published for rollouts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weir.cluster.description import Costs, Description, Device, MemberGroup, Rules, WorkloadSection
from weir.cluster.policies.by_name import POLICIES
from weir.cluster.simulator.result import Result
from weir.cluster.simulator.simulation import Simulation
from weir.cluster.state import BOTH

H800 = Device(flops=989e12, bandwidth=3.35e12, memory_gb=80)
SINGLE_TURN_8K = WorkloadSection(kind="lognormal", prompt=512, median=820, spread=0.99, limit=8192)
AGENTS_64K = WorkloadSection(
    kind="agents", prompt=2000, median=300, spread=0.9, limit=65_536, turns=20, result=1000, think_s=3
)
SHARES = (0.375, 0.46875, 0.5)
"""Shares of the members that train, of which each policy gets its best."""
UPDATES_PER_VERSION = 4
"""The mini-batches of a version: `tags` trains on one as soon as it is there, the others on all when all are there."""


@dataclass(frozen=True, slots=True)
class Run:
    """A policy's run with a number of training members."""

    policy: str
    train_members: int
    result: Result

    def figures(self) -> dict[str, Any]:
        """What a report needs of it."""
        return {
            "train_members": self.train_members,
            "tokens_per_s": round(self.result.tokens_per_s),
            "idle_share": round(self.result.idle_share, 4),
            "staleness": max(self.result.staleness, default=0),
        }


def describe(
    members: int, samples: int, policy: str, train_members: int, workload: WorkloadSection, costs: Costs | None = None
) -> Description:
    """A cluster of equal members; `samples` are those of a version under every policy."""
    mini = UPDATES_PER_VERSION if policy == "tags" else 1
    return Description(
        devices={"h800": H800},
        members=(MemberGroup(kind="h800", count=members, tags=tuple(sorted(BOTH))),),
        costs=costs or Costs(),
        rules=Rules(batch=samples // mini, updates_per_version=mini, train_members=train_members),
        workload=workload,
    )


def run(description: Description, policy: str, *, versions: int = 0) -> Run:
    """A run of so many versions after the first three; without a number, enough for a steady state."""
    mini = description.rules.updates_per_version
    versions = versions or (8 if policy == "tags" else 3)  # the others repeat themselves from version to version
    result = Simulation(description, POLICIES[policy]).run(updates=(versions + 3) * mini, warmup=3 * mini)
    return Run(policy, description.rules.train_members, result)


def best_run(
    members: int,
    samples: int,
    policy: str,
    workload: WorkloadSection,
    costs: Costs | None = None,
    shares: tuple[float, ...] = SHARES,
    versions: int = 0,
) -> Run:
    """The policy's run with the split that gives it most; all members train under `sync_colocated`."""
    splits = [members] if policy == "sync_colocated" else [round(members * share) for share in shares]
    runs = (
        run(describe(members, samples, policy, split, workload, costs), policy, versions=versions) for split in splits
    )
    return max(runs, key=lambda one: one.result.tokens_per_s)
