"""The simulator beside closed forms: waits of M/M/c queues and behind shared prefixes, a balanced pipeline, makespans.

Within 2 %.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from weir.cluster.description import Costs, Description, Device, MemberGroup, Rules
from weir.cluster.policies.by_name import POLICIES
from weir.cluster.policies.placement import generators, moves
from weir.cluster.simulator.prefix_cache import BLOCK
from weir.cluster.simulator.result import Result
from weir.cluster.simulator.simulation import Simulation
from weir.cluster.state import Action, Event, Role, State, Tag
from weir.cluster.suite.checks import Check
from weir.cluster.workloads.episode import Episode

TOLERANCE = 0.02
ROLLOUT, TRAIN = (Tag.ROLLOUT,), (Tag.TRAIN,)


def servers(groups: Sequence[tuple[int, tuple[Tag, ...]]], rules: Rules | None = None, **costs: float) -> Description:
    """Members that each serve one request at a time, a second for each token, and nothing else costs anything."""
    plain = {"step_weights_s": 1.0, "step_request_s": 0.0, "step_context_s": 0.0, "step_overhead_s": 0.0}
    free = {"prefill_token_s": 0.0, "load_s": 0.0, "spread_s": 0.0, "to_train_s": 0.0, "to_rollout_s": 0.0}
    free |= {"state_s": 0.0, "kv_tokens": 1e18}
    return Description(
        devices={"server": Device(flops=1.0, bandwidth=1.0, memory_gb=1.0)},
        members=tuple(MemberGroup(kind="server", count=count, tags=tags) for count, tags in groups),
        costs=Costs.model_validate({**plain, **free, "max_running": 1, **costs}),
        rules=rules or Rules(),
    )


def equal_episodes(seconds: float) -> Iterator[Episode]:
    """Episodes of one turn that each take so long on such a server."""
    return itertools.repeat(Episode((0.0,), (seconds,), (0.0,)))


def serve_only(state: State, _: Event) -> Sequence[Action]:
    """A policy for online traffic alone: every member generates."""
    return moves(state, generators(state), Role.ROLLOUT)


def erlang_wait_s(num_servers: int, arrival_rate: float, service_rate: float) -> float:
    """Mean seconds in the queue of an M/M/c system (Erlang C)."""
    load = arrival_rate / service_rate
    busy = load**num_servers / math.factorial(num_servers) / (1 - load / num_servers)
    waits = busy / (sum(load**k / math.factorial(k) for k in range(num_servers)) + busy)
    return waits / (num_servers * service_rate - arrival_rate)


def queue_wait(num_servers: int, utilisation: float, arrivals: int, seed: int = 1) -> Check:
    """Poisson arrivals, exponential lengths: the mean hold is Erlang's. The means of what is drawn are exact."""
    random = np.random.default_rng(seed)
    rate = utilisation * num_servers
    gaps, works = random.exponential(1.0, (2, arrivals))
    at = np.cumsum(gaps / gaps.mean() / rate).tolist()
    lengths = (works / works.mean()).tolist()
    online = (Episode((0.0,), (length,), (0.0,), when) for when, length in zip(at, lengths, strict=True))
    description = servers([(num_servers, ROLLOUT), (1, TRAIN)])
    result = Simulation(description, serve_only, online=online).run(until_s=at[-1])
    return Check(
        name=f"mean wait, M/M/{num_servers} at {utilisation:g}",
        expected=erlang_wait_s(num_servers, rate, 1.0),
        simulated=result.hold_s["mean"],
        tolerance=TOLERANCE,
    )


def shared_prefixes(calls: int = 50) -> Check:
    """Calls that come at once to one server, whose prompts of five blocks share four: all but the first compute one."""
    prompt, prefill_s, output = 5.0 * BLOCK, 0.01, 3.0
    first = prompt * prefill_s + output
    later = BLOCK * prefill_s + output
    online = [Episode((prompt,), (output,), (0.0,), 1.0, prefix=(1, 2, 3, 4, 5 + number)) for number in range(calls)]
    description = servers([(1, ROLLOUT), (1, TRAIN)], prefill_token_s=prefill_s)
    result = Simulation(description, serve_only, online=online).run(until_s=2.0 + first + calls * later)
    return Check(
        name="mean wait behind prompts that share a prefix, s",
        expected=sum(first + (place - 1) * later for place in range(1, calls)) / calls,
        simulated=result.hold_s["mean"],
        tolerance=TOLERANCE,
    )


def balanced_pipeline() -> list[Check]:
    """Generation of a batch takes as long as an update, on halves of a cluster: full throughput, no idle member."""
    rules = Rules(batch=64, train_members=8)
    description = servers([(8, ROLLOUT), (8, TRAIN)], rules, update_s=80.0)
    result = _run(description, "one_step_off", 10.0, updates=12)
    return [
        Check(name="balanced pipeline, tokens/s", expected=8.0, simulated=result.tokens_per_s, tolerance=TOLERANCE),
        Check(name="balanced pipeline, busy share", expected=1.0, simulated=1 - result.idle_share, tolerance=TOLERANCE),
    ]


def makespans() -> list[Check]:
    """A batch of equal samples takes as many rounds as it needs; one of unequal ones stays within Graham's bounds."""
    rules = Rules(batch=30, train_members=8)
    description = servers([(8, (Tag.ROLLOUT, Tag.TRAIN))], rules, update_s=1.0)
    equal = _run(description, "sync_colocated", 10.0, updates=4)
    lengths = np.random.default_rng(2).lognormal(2.0, 1.0, 30).tolist()
    episodes = itertools.cycle([Episode((0.0,), (length,), (0.0,)) for length in lengths])
    policy = POLICIES["sync_colocated"]
    unequal = Simulation(description, policy, episodes=episodes).run(updates=3, warmup=1).wait_s or 0.0
    least = max(sum(lengths) / 8, *lengths)
    most = sum(lengths) / 8 + (1 - 1 / 8) * max(lengths)
    return [
        Check(name="makespan of equal samples", expected=40.0, simulated=equal.wait_s or 0.0, tolerance=TOLERANCE),
        Check(
            name="makespan within Graham's bounds",
            expected=min(max(unequal, least), most),
            simulated=unequal,
            tolerance=TOLERANCE,
        ),
    ]


def closed_forms(arrivals: int = 300_000) -> list[Check]:
    """All comparisons with closed forms."""
    queues = [queue_wait(1, 0.5, arrivals), queue_wait(4, 0.7, arrivals), queue_wait(16, 0.8, arrivals)]
    return [*queues, shared_prefixes(), *balanced_pipeline(), *makespans()]


def _run(description: Description, policy: str, seconds: float, *, updates: int) -> Result:
    simulation = Simulation(description, POLICIES[policy], episodes=equal_episodes(seconds))
    return simulation.run(updates=updates, warmup=2)
