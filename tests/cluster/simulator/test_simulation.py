"""Whole runs: nothing is lost, figures are those that can be computed by hand, and every policy keeps its promise."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import pytest

from weir.cluster.description import Costs, Description, Device, MemberGroup, Rules, WorkloadSection
from weir.cluster.errors import ClusterInvalid
from weir.cluster.policies.by_name import POLICIES
from weir.cluster.simulator.gantt import gantt
from weir.cluster.simulator.result import Result
from weir.cluster.simulator.simulation import Simulation
from weir.cluster.state import BOTH, Action, Event, State, Tag
from weir.cluster.suite.closed_forms import balanced_pipeline, equal_episodes, makespans, queue_wait, servers
from weir.cluster.suite.sweep import scaled
from weir.cluster.workloads.episode import Episode

DEVICE = Device(flops=989e12, bandwidth=3.35e12, memory_gb=80)
COLOCATED = (8, tuple(BOTH))


def described(**costs: float) -> Description:
    return Description(
        devices={"gpu": DEVICE},
        members=(MemberGroup(kind="gpu", count=4),),
        costs=Costs.model_validate(costs),
        rules=Rules(batch=16, train_members=2, updates_per_version=2),
        workload=WorkloadSection(median=200, limit=2000),
    )


@pytest.mark.parametrize(("num_servers", "utilisation"), [(1, 0.5), (4, 0.7)])
def test_waits_are_erlangs(num_servers: int, utilisation: float) -> None:
    check = queue_wait(num_servers, utilisation, 200_000)
    assert check.met, check


def test_pipelines_and_makespans_are_those_of_the_formulas() -> None:
    for check in [*balanced_pipeline(), *makespans()]:
        assert check.met, check


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_run_accounts_for_all_time_and_all_samples(name: str) -> None:
    simulation = Simulation(described(judge_s=0.5), POLICIES[name], keep_segments=True)
    result = simulation.run(updates=8, warmup=2)
    assert result.updates == 6
    assert sum(result.shares.values()) == pytest.approx(1.0)
    assert sum(result.staleness.values()) == 8 * 16
    assert max(result.staleness) <= 1
    for shares in result.member_shares.values():
        assert sum(shares.values()) == pytest.approx(1.0)
    ended = {segment.member: 0.0 for segment in result.segments}
    for segment in sorted(result.segments, key=lambda one: one.start_s):
        assert segment.start_s == pytest.approx(ended[segment.member])
        ended[segment.member] = segment.end_s


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = (Simulation(described(), POLICIES["tags"]).run(updates=6) for _ in range(2))
    of_machine = {"events_per_s", "wall_s"}
    assert {k: v for k, v in first.figures().items() if k not in of_machine} == {
        k: v for k, v in second.figures().items() if k not in of_machine
    }


def colocated_step(**costs: float) -> Result:
    """Eight members, 16 samples of 10 s each, an update of 7 s."""
    description = servers([COLOCATED], Rules(batch=16, train_members=8), update_s=7.0, **costs)
    return Simulation(description, POLICIES["sync_colocated"], episodes=equal_episodes(10.0)).run(updates=5)


@pytest.mark.parametrize(
    ("sessions", "generation_s"),
    [(0, 2 + 10 + 1), (4, 2 + 10 + 1), (2, 10 + 2 + 10 + 1), (1, 2 * (2 + 10 + 1) + 2 * 10)],
)
def test_sessions_of_a_sample_run_beside_each_other_with_their_agents_pauses(sessions: int, generation_s: int) -> None:
    other = Episode((0.0,), (10.0,), (0.0,))
    sample = Episode((0.0,), (10.0,), (2.0,), after_s=1.0, others=(other,))
    rules = Rules(batch=2, train_members=4, sessions=sessions)
    description = servers([(4, tuple(BOTH))], rules, update_s=7.0)
    simulation = Simulation(description, POLICIES["sync_colocated"], episodes=itertools.repeat(sample))
    result = simulation.run(updates=5)
    assert result.update_period_s == pytest.approx(generation_s + 7)
    assert result.tokens_per_s == pytest.approx(2 * sample.generated / (generation_s + 7))
    assert sum(result.staleness.values()) == 5 * 2, "a sample counts once, whatever the number of its sessions"


def test_a_colocated_step_is_generation_update_and_two_switches() -> None:
    result = colocated_step(to_train_s=2.0, to_rollout_s=3.0)
    assert result.update_period_s == pytest.approx(20 + 7 + 5)
    assert result.shares["switch"] == pytest.approx(5 / 32)


def test_judging_before_the_update_is_idle_time_and_judging_meanwhile_is_not() -> None:
    meanwhile = colocated_step(judge_s=4.0)
    assert meanwhile.update_period_s == pytest.approx(20 + 4 + 7)
    before = colocated_step(judge_s=4.0, judges=8, judge_overlaps=False)
    assert before.update_period_s == pytest.approx(20 + 2 * 4 + 7)
    assert before.shares["awaits_judge"] == pytest.approx(8 / 35)


def test_turns_wait_for_the_agent_and_keep_their_cache() -> None:
    description = servers([(1, tuple(BOTH))], Rules(batch=1, train_members=1), update_s=1.0, prefill_token_s=0.1)
    episode = Episode((10.0, 5.0), (3.0, 4.0), (0.0, 6.0))
    result = Simulation(description, POLICIES["sync_colocated"], episodes=iter([episode] * 9)).run(updates=4)
    assert result.update_period_s == pytest.approx((1.0 + 3.0) + 6.0 + (0.5 + 4.0) + 1.0)
    assert result.shares["agents_think"] == pytest.approx(6.0 / 15.5)


def test_moved_requests_keep_their_output_and_are_prefilled_again() -> None:
    roles = [(1, (Tag.ROLLOUT,)), (1, tuple(BOTH))]
    description = servers(roles, Rules(batch=2, train_members=1), update_s=30.0, max_running=8)
    lengths = iter([Episode((0.0,), (length,), (0.0,)) for length in (5.0, 5.0, 50.0, 50.0, *[5.0] * 99)])
    result = Simulation(description, POLICIES["tags"], episodes=lengths).run(updates=2, warmup=1)
    assert result.staleness == {0: 2, 1: 2}


def test_a_policy_that_stops_is_reported() -> None:
    def nothing(_: State, __: Event) -> Sequence[Action]:
        return ()

    with pytest.raises(ClusterInvalid, match="after 0 updates nothing is left to happen"):
        Simulation(described(), nothing).run(updates=2)


def test_a_scaled_cluster_keeps_its_proportions() -> None:
    larger = scaled(described(), 40)
    assert (larger.members[0].count, larger.rules.batch, larger.rules.train_members) == (40, 160, 20)


def test_the_picture_holds_a_row_for_each_member_and_a_colour_for_each_activity() -> None:
    simulation = Simulation(described(), POLICIES["tags"], keep_segments=True)
    picture = ET.fromstring(gantt(simulation.run(updates=4).segments, "tags"))
    texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"gpu-0-0", "gpu-0-3", "generate", "train"} <= set(texts)


def versions_of(policy: str, **costs: float) -> Result:
    """Two members generate samples of 10 s; two others take 10 s to train on them."""
    members = [(2, (Tag.ROLLOUT,)), (2, (Tag.TRAIN,))]
    description = servers(members, Rules(batch=4, train_members=2), update_s=20.0, **costs)
    return Simulation(description, POLICIES[policy], episodes=equal_episodes(10.0)).run(updates=8, warmup=3)


def test_engines_generate_while_weights_travel_and_hold_their_calls_where_that_is_switched_off() -> None:
    overlapped = versions_of("tags", spread_s=4.0, load_s=1.0)
    held = versions_of("tags", spread_s=4.0, load_s=1.0, weights_overlap=False)
    assert overlapped.overlapped_s["weights"] == pytest.approx(5 * 2 * 4.0)
    assert overlapped.shares["load"] * overlapped.seconds * 4 == pytest.approx(5 * 2 * 1.0)
    assert held.overlapped_s == {}
    assert held.shares["load"] * held.seconds * 4 == pytest.approx(5 * 2 * 5.0)
    assert held.idle_share > overlapped.idle_share


def test_a_member_generates_while_the_state_of_its_optimizer_comes() -> None:
    rules = Rules(batch=2, train_members=2)

    def step(**costs: float) -> Result:
        description = servers([(2, tuple(BOTH))], rules, update_s=7.0, to_train_s=5.0, **costs)
        return Simulation(description, POLICIES["sync_colocated"], episodes=equal_episodes(10.0)).run(updates=5)

    meanwhile, before = step(state_s=2.0), step(state_s=2.0, state_overlaps=False)
    assert meanwhile.update_period_s == before.update_period_s == pytest.approx(10 + 5 + 7)
    assert meanwhile.shares["switch"] == pytest.approx(3 / 22)
    assert before.shares["switch"] == pytest.approx(5 / 22)
    assert meanwhile.overlapped_s == {"state": pytest.approx(4 * 2 * 2.0)}


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_online_sessions_keep_engines_while_others_train_or_load(name: str) -> None:
    """Without a share of their own they wait for loads, and under a policy that takes all members for whole updates."""

    def longest(share: float) -> float:
        description = described(load_s=20.0, to_train_s=5.0, judge_s=0.5)
        rules = description.rules.model_copy(update={"serve_share": share, "updates_per_version": 1})
        online = [Episode((10.0,), (20.0,), (0.0,), arrival_s=0.5 * number) for number in range(2000)]
        simulation = Simulation(description.model_copy(update={"rules": rules}), POLICIES[name], online=online)
        result = simulation.run(updates=6)
        assert max(result.staleness) <= 1
        return result.serve_hold_s["max"]

    assert longest(0.25) < 1.0 < longest(0.0)


def test_the_longest_samples_are_aborted_once_enough_others_are_ready() -> None:
    """A batch of 4 of 6: two of 100 s end with the four of 10 s. Kept ones are taken by the next update."""

    def run(stragglers: str) -> Result:
        lengths = itertools.cycle([100.0, 100.0, 10.0, 10.0, 10.0, 10.0])
        episodes = (Episode((0.0,), (length,), (0.0,)) for length in lengths)
        rules = Rules.model_validate(
            {"batch": 4, "train_members": 1, "oversample": 0.5, "stragglers": stragglers, "max_staleness": 1}
        )
        members = [(6, (Tag.ROLLOUT,)), (1, (Tag.TRAIN,))]
        description = servers(members, rules, update_s=5.0)
        return Simulation(description, POLICIES["disaggregated"], episodes=episodes).run(updates=4, warmup=0)

    aborted, kept = run("abort"), run("keep")
    assert (aborted.aborted, aborted.wasted_tokens, sum(aborted.staleness.values())) == (8, 800.0, 16)
    assert aborted.seconds == pytest.approx(4 * 15.0)
    assert kept.seconds > aborted.seconds and sum(kept.staleness.values()) == 16


def test_samples_without_spread_are_replaced() -> None:
    rules = Rules(batch=16, train_members=2, no_spread=0.3)
    result = Simulation(described().model_copy(update={"rules": rules}), POLICIES["tags"]).run(updates=5)
    assert sum(result.staleness.values()) == 5 * 16 and result.wasted_tokens > 0 and result.refilled > 5
    bounded = rules.model_copy(update={"refill": 1 / 16})
    result = Simulation(described().model_copy(update={"rules": bounded}), POLICIES["tags"]).run(updates=5)
    assert 1 <= result.refilled <= 6, "one in a version"
