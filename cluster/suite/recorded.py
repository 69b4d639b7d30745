"""A run of `weir train` beside its simulation, from its store alone: the same members, sessions and costs.

A sample is a group, as in the run: its sessions run beside each other. Figures are of the time between the
last round of the warm-up and the last round.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from weir.cluster.costs.calibrate import calibrate
from weir.cluster.description import Costs, Description, Device, MemberGroup, Rules
from weir.cluster.errors import ClusterInvalid
from weir.cluster.policies.by_name import POLICIES
from weir.cluster.simulator.result import Result
from weir.cluster.simulator.simulation import Simulation
from weir.cluster.state import Tag
from weir.cluster.timeline import BESIDE, BUSY
from weir.cluster.workloads.sessions import read_groups
from weir.store.reader import connect

UPDATES = 60  # that are simulated
ROOMY = 1e9  # tokens of a KV cache that is never full
ROUNDS = """
SELECT epoch(r.committed_at), count(DISTINCT s.group_id), sum(s.num_output_tokens)
FROM (SELECT round_id, committed_at, unnest(group_ids) AS group_id FROM rounds WHERE state = 'committed') r
JOIN sessions s USING (group_id) WHERE s.num_output_tokens > 0 GROUP BY r.round_id, r.committed_at ORDER BY 1"""
PHASES = """
SELECT member, seconds, epoch(began_at), epoch(ended_at), phase, weight_version FROM phases
WHERE ended_at IS NOT NULL AND seconds IS NOT NULL"""
AT_A_TIME = """
SELECT max(level) FROM (
  SELECT sum(step) OVER (ORDER BY moment, step) AS level FROM (
    SELECT created_at AS moment, 1 AS step FROM sessions WHERE epoch(created_at) BETWEEN $1 AND $2
    UNION ALL
    SELECT finished_at AS moment, -1 AS step FROM sessions WHERE epoch(created_at) BETWEEN $1 AND $2))"""
AGES = """
SELECT max(r.weight_version - 1 - s.version_min)
FROM (SELECT weight_version, unnest(group_ids) AS group_id FROM rounds WHERE state = 'committed') r
JOIN sessions s USING (group_id)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What a run did, after its warm-up.

    Attributes:
        tags: The tags of each member.
        batch: Groups of a round, the most frequent number.
        train_members: Members that trained at a time.
        sessions: Sessions that agents ran at a time, at most.
        max_staleness: Versions between a group and its round, at most.
        tokens_per_s: Generated tokens of the groups that were trained on, a second.
        idle_share: Share of all members' time without generating or training.
        shares: Share of all members' time by activity.
    """

    tags: Sequence[frozenset[Tag]]
    batch: int
    train_members: int
    sessions: int
    max_staleness: int
    rounds: int
    begins_s: float
    seconds: float
    tokens_per_s: float
    idle_share: float
    shares: dict[str, float]


def recorded(root: Path | str, warmup: int) -> Recorded:
    """The figures of the run in a store.

    Raises:
        ClusterInvalid: No controller ran over the store, or it made too few rounds.
    """
    with connect(root) as db:
        rounds = db.execute(ROUNDS).fetchall()
        members = db.execute("SELECT tags FROM members ORDER BY name").fetchall()
        if not members or len(rounds) < warmup + 2:
            raise ClusterInvalid(
                f"the store {root} has {len(members)} members and {len(rounds)} rounds: a comparison needs one run of "
                f"weir train over it, and {warmup + 2} rounds"
            )
        [(age,)] = db.execute(AGES).fetchall()
        begins, ends = rounds[warmup - 1][0], rounds[-1][0]
        seconds, trainers = _activities(db, begins, ends)
        [(sessions,)] = db.execute(AT_A_TIME, [begins, ends]).fetchall()
    whole = sum(seconds.values())
    shares = {name: spent / whole for name, spent in sorted(seconds.items())}
    return Recorded(
        tags=[frozenset(Tag(tag) for tag in json.loads(tags)) for (tags,) in members],
        batch=Counter(count for _, count, _ in rounds).most_common(1)[0][0],
        train_members=trainers,
        sessions=int(sessions or 0),
        max_staleness=max(int(age or 0), 0),
        rounds=len(rounds) - warmup,
        begins_s=begins,
        seconds=ends - begins,
        tokens_per_s=sum(tokens for _, _, tokens in rounds[warmup:]) / (ends - begins),
        idle_share=1 - sum(shares.get(busy, 0.0) for busy in BUSY),
        shares=shares,
    )


def _activities(db: duckdb.DuckDBPyConnection, begins: float, ends: float) -> tuple[Counter[str], int]:
    """Seconds of all members by activity between two moments, and how many members trained for a version."""
    seconds: Counter[str] = Counter()
    trainers: dict[int, set[str]] = {}
    for member, of, began, ended, phase, version in db.execute(PHASES).fetchall():
        share = max(min(ended, ends) - max(began, begins), 0.0) / max(ended - began, 1e-9)
        for activity, spent in json.loads(of).items():
            if not activity.endswith(BESIDE):
                seconds[activity] += share * spent
        if share and phase == "train":
            trainers.setdefault(version, set()).add(member)
    return seconds, Counter(map(len, trainers.values())).most_common(1)[0][0] if trainers else 1


def simulated(root: Path | str, run: Recorded, policy: str, warmup: int) -> Result:
    """The same cluster and sessions under a policy, with the costs that fit the store. Raises as `calibrate` does."""
    device = Device(flops=1.0, bandwidth=1.0, memory_gb=1.0)  # no cost is worked out of them
    kinds = Counter(run.tags)
    members = [MemberGroup(kind="device", count=count, tags=tuple(sorted(tags))) for tags, count in kinds.items()]
    description = Description(
        devices={"device": device},
        members=tuple(members),
        costs=Costs.model_validate(calibrate(root, run.begins_s).costs() | {"kv_tokens": ROOMY}),
        rules=Rules(
            batch=run.batch,
            max_staleness=run.max_staleness,
            train_members=run.train_members,
            sessions=run.sessions,
        ),
    )
    episodes = itertools.cycle(read_groups(root, warmup))
    return Simulation(description, POLICIES[policy], episodes=episodes).run(updates=UPDATES, warmup=warmup)


def against(root: Path | str, policy: str, warmup: int) -> dict[str, dict[str, Any]]:
    """Throughput and idle share of a run and of its simulation, and their ratio or difference. Raises as both do."""
    run = recorded(root, warmup)
    result = simulated(root, run, policy, warmup)
    causes = sorted({*run.shares, *result.shares})
    return {
        "tokens_per_s": {
            "recorded": run.tokens_per_s,
            "simulated": result.tokens_per_s,
            "ratio": result.tokens_per_s / run.tokens_per_s,
        },
        "idle_share": {
            "recorded": run.idle_share,
            "simulated": result.idle_share,
            "difference": result.idle_share - run.idle_share,
        },
        "shares": {
            cause: {"recorded": run.shares.get(cause, 0.0), "simulated": result.shares.get(cause, 0.0)}
            for cause in causes
        },
        "run": {"rounds": run.rounds, "seconds": run.seconds, "batch": run.batch, "train_members": run.train_members},
    }
