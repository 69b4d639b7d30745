"""`weir simulate --suite paper`: the goals of the policy `tags`, each with its value, and what decides it.

Every value is simulated. A goal that is missed stays missed: `assumption` says what would have to be otherwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from weir.cluster.description import Costs, Description, Device, MemberGroup, Rules
from weir.cluster.suite.checks import Check
from weir.cluster.suite.closed_forms import closed_forms
from weir.cluster.suite.published import published
from weir.cluster.suite.scenarios import AGENTS_64K, SHARES, SINGLE_TURN_8K, Run, best_run, describe, run

POLICY_NAMES = ("disaggregated", "sync_colocated", "one_step_off", "tags")
SAMPLES = 128
"""Samples of a version for each member: 4,096 on 32, 256 prompts of 16 responses."""
AGENT_SAMPLES = 512
COMPUTE_STRONG = Device(flops=989e12, bandwidth=2.0e12, memory_gb=80)
BANDWIDTH_STRONG = Device(flops=296e12, bandwidth=4.0e12, memory_gb=96)
OVERLAPS = ("judge_overlaps", "weights_overlap", "state_overlaps")
Goal = dict[str, Any]


def paper_suite(say: Callable[[str], None]) -> dict[str, Goal]:
    """All goals by name: `value`, `goal`, `met`, and `assumption`, which decides. `say` gets a line for each step."""
    say("8K single turn on 32 members")
    runs = {name: best_run(32, 32 * SAMPLES, name, SINGLE_TURN_8K) for name in POLICY_NAMES}
    goals = _single_turn(runs)
    say("64K agents on 32 members")
    goals |= _agents({name: best_run(32, AGENT_SAMPLES, name, AGENTS_64K) for name in POLICY_NAMES})
    say("judging, lending, KV capacity")
    goals |= _judging(runs["tags"].train_members) | _lending() | _in_flight()
    say("64 and 1,024 members")
    goals |= _scaling(runs)
    say("assignments of a mixed cluster")
    goals |= _mixed()
    say("closed forms and published figures")
    goals["closed_forms"] = _checks(closed_forms(), 0.02, "the simulator's own noise")
    goals["published"] = _checks(
        published(),
        0.15,
        "lengths of an asynchronous row are those of the synchronous row of its size. verl's run on 16:16 has shorter "
        "answers: 357 s of generation on 32 devices cannot become less than 295 s on 16 otherwise",
    )
    rates = [one.result.events_per_s for one in runs.values()]
    goals["events_per_s"] = _at_least(max(rates), 200_000, "the load of this machine and the speed of its Python")
    return goals


def _single_turn(runs: dict[str, Run]) -> dict[str, Goal]:
    tags = runs["tags"].result
    figures = {name: one.figures() for name, one in runs.items()}
    balanced = (
        "the lengths' tail: with batches so large that it does not count, a balanced pipeline has no bubble either"
    )
    goals = {
        f"throughput_over_{name}": _at_least(tags.tokens_per_s / runs[name].result.tokens_per_s, least, balanced)
        for name, least in (("disaggregated", 2.0), ("sync_colocated", 1.15), ("one_step_off", 1.15))
    }
    goals["throughput_over_disaggregated"]["runs"] = figures
    goals["idle_share"] = _at_most(tags.idle_share, 0.05, "seconds of loading and switching in a version")
    goals["idle_share"]["by_cause"] = {name: round(share, 4) for name, share in tags.shares.items()}
    goals["max_staleness"] = _at_most(max(tags.staleness), 1, "none: it is refused otherwise")
    goals["hold_p99_s"] = {"value": round(tags.hold_s["p99"], 3), "goal": None, "met": True}
    return goals


def _agents(runs: dict[str, Run]) -> dict[str, Goal]:
    ratio = runs["tags"].result.tokens_per_s / runs["disaggregated"].result.tokens_per_s
    goal = _at_least(ratio, 1.55, "think times and turns of the agents")
    goal["runs"] = {name: one.figures() for name, one in runs.items()}
    return {"throughput_agents_over_disaggregated": goal}


def _judging(train_members: int) -> dict[str, Goal]:
    """Idle share with every overlap, and with each of them switched off."""
    shares = {}
    for off in (None, *OVERLAPS):
        costs = Costs.model_validate({"judge_s": 2.0, **({off: False} if off else {})})
        description = describe(32, 32 * SAMPLES, "tags", train_members, SINGLE_TURN_8K, costs)
        shares[off] = round(run(description, "tags").result.idle_share, 4)
    goal = _at_most(
        shares[None],
        0.03,
        "the 0.3 s of loading weights that wait on the member, which assume 50 GB/s from the host's memory, and the "
        "3 s of switching each way",
    )
    goal["without"] = {off: shares[off] for off in OVERLAPS}
    return {"idle_share_judging_overlaps": goal}


def _lending() -> dict[str, Goal]:
    """Switches with a cost that a wait repays, and with one that it does not."""
    switches = {}
    for seconds in (3.0, 300.0):
        costs = Costs(to_train_s=seconds, to_rollout_s=seconds)
        description = describe(32, 32 * SAMPLES, "tags", 20, SINGLE_TURN_8K, costs)
        switches[seconds] = run(description, "tags").result.switches
    return {
        "lends_only_where_it_pays": {
            "value": switches[300.0],
            "goal": 0,
            "with_3_s": switches[3.0],
            "met": switches[300.0] == 0 and switches[3.0] > 0,
            "assumption": "a wait is what is missing of the batch over the learned rate",
        }
    }


def _in_flight() -> dict[str, Goal]:
    """Requests that lose their place for want of KV cache, a trained sample, where all of a version's would not fit."""
    costs = Costs(kv_tokens=60_000)
    result = run(describe(32, 32 * SAMPLES, "tags", 12, SINGLE_TURN_8K, costs), "tags", versions=3).result
    share = result.evicted / (result.updates * 32 * SAMPLES / 4)
    return {"evictions_a_sample": _at_most(share, 0.05, "the mean cost of an episode says enough of its spread")}


def _scaling(at_32: dict[str, Run]) -> dict[str, Goal]:
    """The advantage over `disaggregated` with the cluster: of the same workload, and of one that grows with it."""
    first = at_32["tags"].result.tokens_per_s / at_32["disaggregated"].result.tokens_per_s
    same, growing = [first], [first]
    for members in (64, 1024):
        same.append(_gain(members, 32 * SAMPLES, at_32 if members > 64 else None))
        growing.append(_gain(members, members * SAMPLES, at_32))
    return {
        "advantage_grows": _growth(
            growing,
            "answers end at 8K and each member has as many samples as before: the tail is hardly longer then",
        ),
        "advantage_grows_with_the_same_samples": _growth(
            same,
            "an answer of 8K tokens ends within two versions, since none may be older: with few samples a member it "
            "bounds `tags` as it bounds the baseline",
        ),
    }


def _gain(members: int, samples: int, splits: dict[str, Run] | None) -> float:
    """Throughput of `tags` over `disaggregated`, each with its best split, or with the shares of smaller runs."""
    rates = {}
    for name in ("disaggregated", "tags"):
        shares = SHARES if splits is None else (splits[name].train_members / 32,)
        versions = 3 if members > 64 else 0
        one = best_run(members, samples, name, SINGLE_TURN_8K, shares=shares, versions=versions)
        rates[name] = one.result.tokens_per_s
    return rates["tags"] / rates["disaggregated"]


def _growth(gains: list[float], assumption: str) -> Goal:
    return {
        "value": [round(gain, 3) for gain in gains],
        "goal": "increasing over 32, 64, 1,024 members",
        "met": gains[0] < gains[1] < gains[2],
        "assumption": assumption,
    }


def _mixed() -> dict[str, Goal]:
    """Who trains on 4 + 4 unlike members: by roofline, and by trying every assignment.

    Members of a kind are interchangeable, so the 256 assignments are 25, without those in which nobody trains.
    """
    best = max((_mixed_rate(c, b), c, b) for c, b in itertools.product(range(5), repeat=2) if c + b)
    chosen = max(_mixed_rate(members) for members in range(1, 9))
    goal = _at_least(chosen / best[0], 0.97, "how compute-strong and bandwidth-strong members differ")
    goal["best_assignment"] = {"compute": best[1], "bandwidth": best[2]}
    return {"train_priority_by_roofline": goal}


def _mixed_rate(training: int, of_bandwidth: int | None = None) -> float:
    """Tokens a second where so many members train: by roofline, or so many of the one kind and so many of the other."""
    devices = {"compute": COMPUTE_STRONG, "bandwidth": BANDWIDTH_STRONG}
    if of_bandwidth is None:
        groups = [MemberGroup(kind=kind, count=4) for kind in devices]
    else:
        counts = {"compute": training, "bandwidth": of_bandwidth}
        parts = [(kind, 1.0, count) for kind, count in counts.items()]
        parts += [(kind, 0.0, 4 - count) for kind, count in counts.items()]
        groups = [MemberGroup(kind=kind, count=n, train_priority=first) for kind, first, n in parts if n]
    description = Description(
        devices=devices,
        members=tuple(groups),
        rules=Rules(batch=8 * SAMPLES // 4, updates_per_version=4, train_members=training + (of_bandwidth or 0)),
        workload=SINGLE_TURN_8K,
    )
    return run(description, "tags", versions=3).result.tokens_per_s


def _checks(checks: list[Check], tolerance: float, assumption: str) -> Goal:
    goal = _at_most(max(check.error for check in checks), tolerance, assumption)
    goal["checks"] = {check.name: check.figures() for check in checks}
    return goal


def _at_least(value: float, goal: float, assumption: str) -> Goal:
    return {"value": round(value, 4), "goal": f">= {goal:g}", "met": value >= goal, "assumption": assumption}


def _at_most(value: float, goal: float, assumption: str) -> Goal:
    return {"value": round(value, 4), "goal": f"<= {goal:g}", "met": value <= goal, "assumption": assumption}
