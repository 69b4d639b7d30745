"""The simulator beside what verl published: its fully-asynchronous tables and the lending of trainers. Within 15 %.

The tables (verl's page on its fully asynchronous trainer: Qwen2.5-Math-7B, H20, 512 prompts of 16 responses, each of
up to 28K tokens) give seconds a step. The synchronous rows calibrate: for each cluster size, the median length with
which the simulated generation takes as long as the published one. An asynchronous row's own update time is its cost
of training, because runs differ in the lengths that they learn; its step and the trainer's wait are then predicted.
The page's two rows of 32 devices have each other's update_actor, as the sums of their columns show; not so here.

Lending (verl #6556, 35B-A3B on 32 H20): the hours of two splits, one bound by generation and one by training, give
the work of both; the hours with lending are predicted. For verl-omni #575 the published step and wait without lending
give the work, and its published seconds of switching are the costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from weir.cluster.description import Costs, Description, Device, MemberGroup, Model, Rules, WorkloadSection
from weir.cluster.policies.by_name import POLICIES
from weir.cluster.simulator.simulation import Simulation
from weir.cluster.state import BOTH, Tag
from weir.cluster.suite.checks import Check
from weir.cluster.suite.closed_forms import ROLLOUT, TRAIN, equal_episodes, servers

TOLERANCE = 0.15
H20 = Device(flops=148e12, bandwidth=4.0e12, memory_gb=96)
QWEN_7B = Model(params=7.6e9, kv_bytes_per_token=57_344)
SPREAD, LIMIT, SAMPLES, UPDATES = 0.99, 28_672, 8192, 4
LOAD_S = 5.75
"""verl's NCCL transfer of a 7B model: 5.5 to 6.0 s."""
MAX_RUNNING = 1024
"""verl's default of max_num_seqs."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the tables: devices in all, staleness threshold, seconds of step and update_actor."""

    devices: int
    staleness: float
    step_s: float
    update_s: float


SYNC_GENERATION_S = {32: 357.41, 64: 150.72, 128: 177.85}
ROWS = (
    Row(32, 0.5, 294.77, 269.80),
    Row(64, 0.5, 189.26, 156.98),
    Row(128, 0.0, 231.34, 98.77),
    Row(128, 0.1, 171.30, 109.12),
    Row(128, 0.3, 146.11, 103.22),
    Row(128, 0.5, 150.63, 113.16),
)


def tables() -> list[Check]:
    """Seconds of a step in each asynchronous row, calibrated by the synchronous ones."""
    medians = {devices: fitted_median(devices, seconds) for devices, seconds in SYNC_GENERATION_S.items()}
    return [
        Check(
            name=f"verl step, {row.devices // 2}:{row.devices // 2} H20, staleness {row.staleness:g}",
            expected=row.step_s,
            simulated=asynchronous_step_s(row, medians[row.devices]),
            tolerance=TOLERANCE,
        )
        for row in ROWS
    ]


def fitted_median(devices: int, generation_s: float) -> float:
    """The median length with which a synchronous batch is generated in so many seconds, by bisection."""
    low, high = 100.0, 8000.0
    for _ in range(7):
        middle = math.sqrt(low * high)
        if generation_seconds(devices, middle) < generation_s:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


def generation_seconds(devices: int, median: float) -> float:
    """Simulated seconds of generating one synchronous batch on so many devices."""
    description = Description(
        devices={"h20": H20},
        members=(MemberGroup(kind="h20", count=devices),),
        model=QWEN_7B,
        costs=Costs(max_running=MAX_RUNNING, update_s=1.0, to_train_s=0.0, to_rollout_s=0.0),
        rules=Rules(batch=SAMPLES, train_members=devices),
        workload=_lengths(median),
    )
    return Simulation(description, POLICIES["sync_colocated"]).run(updates=2).wait_s or 0.0


def asynchronous_step_s(row: Row, median: float) -> float:
    """Simulated seconds of a step of verl's fully asynchronous trainer: separate halves, four updates a version."""
    half = row.devices // 2
    description = Description(
        devices={"h20": H20},
        members=(MemberGroup(kind="h20", count=half, tags=ROLLOUT), MemberGroup(kind="h20", count=half, tags=TRAIN)),
        model=QWEN_7B,
        costs=Costs(max_running=MAX_RUNNING, update_s=row.update_s / UPDATES, spread_s=0.0, load_s=LOAD_S),
        rules=Rules(
            batch=SAMPLES // UPDATES, updates_per_version=UPDATES, max_staleness=row.staleness, train_members=half
        ),
        workload=_lengths(median),
    )
    result = Simulation(description, POLICIES["tags"]).run(updates=6 * UPDATES, warmup=2 * UPDATES)
    return UPDATES * (result.update_period_s or 0.0)


def lending() -> list[Check]:
    """What verl's lending of idle trainers gained, as published."""
    hours = (6.546 * 16, 6.379 * 8)  # member-hours of generation (16+16 is bound by it) and of training (8+24)
    steps = 100
    whole = _step_s(16, 16, hours[0] / 16 * 3600 / steps, hours[1] / 16 * 3600 / steps, lends=True)
    return [
        Check(name="verl #6556 with lending, h", expected=5.4, simulated=whole * steps / 3600, tolerance=TOLERANCE),
        Check(
            name="verl-omni #575 with lending, s a step",
            expected=307.8,
            simulated=_step_s(1, 2, 377.9, 377.9 - 130.4, lends=True),
            tolerance=TOLERANCE,
        ),
        Check(
            name="verl-omni #575, one more engine instead, s a step",
            expected=250.4,
            simulated=_step_s(2, 2, 377.9 / 2, 377.9 - 130.4, lends=False),
            tolerance=TOLERANCE,
        ),
    ]


def published() -> list[Check]:
    """All comparisons with published figures."""
    return [*tables(), *lending()]


def _step_s(engines: int, trainers: int, generation_s: float, update_s: float, *, lends: bool) -> float:
    """Seconds of a step where a batch takes the engines alone `generation_s`; switching as verl-omni measured it."""
    batch = 128
    tags: tuple[Tag, ...] = tuple(BOTH) if lends else TRAIN
    description = servers(
        [(engines, ROLLOUT), (trainers, tags)],
        Rules(batch=batch, train_members=trainers),
        update_s=update_s,
        to_rollout_s=9.1,
        to_train_s=3.3,
    )
    episodes = equal_episodes(generation_s * engines / batch)
    policy = POLICIES["tags"]
    result = Simulation(description, policy, episodes=episodes).run(updates=14, warmup=4)
    return result.update_period_s or 0.0


def _lengths(median: float) -> WorkloadSection:
    return WorkloadSection(kind="lognormal", prompt=300, median=median, spread=SPREAD, limit=LIMIT)
