"""Each policy under any order of events: deaths, returns, late judges, engines that run out of memory."""

from __future__ import annotations

import math
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support_cluster import TAGS, AnyOrderHost, member

from weir.cluster.due import RULES
from weir.cluster.policies.by_name import POLICIES
from weir.cluster.state import BOTH, Event, Role, Settings, Tag

STREAMS = int(os.environ.get("WEIR_TEST_STREAMS", "400"))  # of events, over all policies

clusters = st.lists(st.sampled_from(TAGS), min_size=1, max_size=5).filter(
    lambda tags: any(Tag.ROLLOUT in one for one in tags) and any(Tag.TRAIN in one for one in tags)
)
rules = st.builds(
    Settings,
    batch=st.integers(1, 5),
    max_staleness=st.sampled_from((0, 0.5, 1, 1.5, 2)),
    updates_per_version=st.integers(1, 3),
    train_members=st.integers(1, 5),
    when=st.lists(st.sampled_from((*RULES, "tokens and seconds", "batch and tokens")), min_size=1, max_size=3).map(
        tuple
    ),
    least=st.integers(1, 5),
    tokens=st.sampled_from((1.0, 25.0, 100.0)),
    seconds=st.sampled_from((1.0, 10.0)),
    serve_share=st.sampled_from((0.0, 0.0, 0.1, 0.5, 1.0)),
    oversample=st.sampled_from((0.0, 0.0, 0.5, 1.0)),
    stragglers=st.sampled_from(("abort", "keep")),
)


def able(name: str, tags: list[frozenset[Tag]], rules: Settings) -> bool:
    """Whether the policy can run on such a cluster at all: two halves need two members, and so do tagged calls."""
    return len(tags) > 1 or (name not in ("disaggregated", "one_step_off") and not rules.serve_share)


@pytest.mark.parametrize("name", sorted(POLICIES))
@given(tags=clusters, rules=rules, numbers=st.lists(st.integers(0, 4095), max_size=120))
@settings(
    max_examples=max(STREAMS // len(POLICIES), 1), deadline=None, suppress_health_check=[HealthCheck.filter_too_much]
)
def test_any_order_of_events_ends_in_updates(
    name: str, tags: list[frozenset[Tag]], rules: Settings, numbers: list[int]
) -> None:
    if not able(name, tags, rules):
        tags = [*tags, BOTH]
    host = AnyOrderHost(POLICIES[name], rules, [member(f"m{i}", one) for i, one in enumerate(tags)])
    for number in numbers:
        host.anything(number)
    started = {
        *host.trained,
        *host.book.sample_version,
        *host.aborted,
    }  # state.started counts a smaller update as a batch
    host.run_fairly(math.ceil(rules.max_staleness) + 2)
    assert len(host.trained) == len(set(host.trained)) >= host.book.state.updates
    if rules.when == ("batch",):
        assert len(host.trained) == host.book.state.updates * rules.batch
    assert started <= set(host.trained) | set(host.book.sample_version) | set(host.aborted), "a sample is lost"
    assert not set(host.aborted) & {*host.trained, *host.book.sample_version}
    assert (
        len(host.aborted)
        == host.book.num_aborted
        <= int(rules.oversample * rules.batch) * (host.book.state.version + 1)
    )
    assert max(host.book.staleness) <= math.ceil(rules.max_staleness)
    oldest = min(host.book.sample_version.values(), default=host.book.state.version)
    assert oldest >= host.book.state.version - math.ceil(rules.max_staleness), "a sample starves"


def run(name: str, updates: int, tags: list[frozenset[Tag]], rules: Settings) -> AnyOrderHost:
    host = AnyOrderHost(POLICIES[name], rules, [member(f"m{i}", one) for i, one in enumerate(tags)])
    host.run_fairly(updates)
    return host


def test_synchronous_policies_train_on_no_stale_sample() -> None:
    for name in ("sync_colocated", "disaggregated"):
        assert run(name, 4, [BOTH, BOTH], Settings(batch=3)).book.staleness == {0: 12}


def test_one_step_off_trains_on_samples_of_the_version_before() -> None:
    assert run("one_step_off", 4, [BOTH, BOTH], Settings(batch=3)).book.staleness == {0: 3, 1: 9}


def test_tags_pre_empts_the_members_of_the_highest_priority_and_the_others_continue() -> None:
    members = [member("a"), member("b", priority=2.0), member("c", priority=1.0)]
    host = AnyOrderHost(POLICIES["tags"], Settings(batch=2, train_members=2), members)
    while not host.book.state.training:
        host.end(host.possible()[0])
    assert host.book.state.training == {"b", "c"}
    assert host.book.state.rotation == {"a"}


def test_tags_keeps_a_member_that_would_be_back_before_it_had_switched() -> None:
    host = run("tags", 1, [BOTH, BOTH], Settings(batch=8, train_members=1))
    state = host.book.state
    state.training, state.running, state.judging = frozenset(), {}, {}
    trainer, rollout = state.members["m0"], state.members["m1"]
    trainer.role, trainer.moving, rollout.role, rollout.moving, rollout.loading = Role.TRAIN, False, Role.ROLLOUT, 0, 0
    state.rotation, state.behind, state.num_ready = {"m1"}, set(), 4
    state.finish_rate, state.switch_s = 1.0, 5.0
    assert not [a for a in POLICIES["tags"](state, Event.TRAINED) if getattr(a, "role", None) is Role.ROLLOUT]
    state.switch_s = 3.0
    assert [a for a in POLICIES["tags"](state, Event.TRAINED) if getattr(a, "role", None) is Role.ROLLOUT]
