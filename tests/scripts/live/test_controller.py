"""`weir train` with real engines, router, proxy and rounds, while parts of it are killed with kill -9.

What no kill may cost: a round twice, a group twice or never, an error that an agent sees, a sample that is too old. All
tests go on over one store, each from whatever the one before left.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest
from support_live import Cluster, running_cluster

from weir.cluster.suite.recorded import against


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), tiny_model_dir) as started:
        yield started


def check(cluster: Cluster, num_rounds: int) -> None:
    """Every round happened once, with groups of its own that were young enough; no agent saw an error."""
    rounds = cluster.rounds()
    assert [row.weight_version for row in rounds] == list(range(1, num_rounds + 1))
    groups = [group for row in rounds for group in row.group_ids]
    assert len(groups) == len(set(groups)) == 2 * num_rounds
    assert cluster.sql("SELECT info FROM sessions WHERE status = 'failed'") == []
    ages = cluster.sql(
        "SELECT r.weight_version - 1 - min(c.version_min) FROM (SELECT weight_version, unnest(group_ids) AS group_id "
        "FROM rounds) r JOIN calls c USING (group_id) GROUP BY r.weight_version, group_id"
    )
    assert max(age for (age,) in ages) <= 1, "a group was older than max_staleness"
    assert cluster.in_rotation() == set(cluster.engine_urls), "all are left in rotation"


def test_engines_generate_and_are_taken_for_training_in_turn(cluster: Cluster) -> None:
    before = len(cluster.rounds())
    cluster.train("--rounds", "6")
    log = cluster.ended()
    check(cluster, before + 6)
    assert f"6 rounds, version {before + 6}" in log
    phases = cluster.sql("SELECT member, phase, count(*) FROM phases WHERE ended_at IS NOT NULL GROUP BY ALL")
    counts = {(member, phase): count for member, phase, count in phases}
    for name in ("both-1", "both-2"):
        assert counts[name, "train"] >= 4 and counts[name, "rollout"] >= 1 and counts[name, "switch"] >= 2
    assert cluster.sql("SELECT count(*) > 0 FROM phases WHERE (seconds ->> 'state_beside')::DOUBLE > 0") == [(True,)]
    assert ("only", "train") not in counts and counts["only", "load"] >= 3
    assert cluster.sql("SELECT sum((seconds ->> 'train')::DOUBLE) > 0 FROM phases WHERE phase = 'train'") == [(True,)]
    figures = against(cluster.folder / "store", "tags", warmup=1)
    assert figures["run"] | {"seconds": 0} == {"rounds": before + 5, "seconds": 0, "batch": 2, "train_members": 2}
    for shares in ("recorded", "simulated"):
        assert sum(of[shares] for of in figures["shares"].values()) == pytest.approx(1.0, abs=0.02)
        assert figures["tokens_per_s"][shares] > 0 and figures["shares"]["train"][shares] > 0


def test_calls_wait_at_the_gate_while_every_engine_is_taken_for_training(cluster: Cluster) -> None:
    """A product behind the same proxy, which is no part of the rounds, keeps calling."""
    before = len(cluster.rounds())
    phases_before = cluster.sql("SELECT max(phase_id) FROM phases")[0][0] or 0
    begun_before = {group for (group,) in cluster.sql("SELECT group_id FROM sessions")}
    members = [{"name": f"all-{number}", "url": url} for number, url in enumerate(cluster.engine_urls)]
    policy = {"WEIR_CLUSTER__POLICY": "sync_colocated", "WEIR_CLUSTER__MEMBERS": json.dumps(members)}
    policy |= {"WEIR_CLUSTER__OVERSAMPLE": "0.5"}  # of three groups a round takes two, and the third is aborted
    policy |= {"STRAGGLERS_OF_THE_TEST": "t2 t5"}  # one of three in a row, which would take an hour
    policy |= {"WEIR_CLUSTER__STATE_OVERLAPS": "false", "WEIR_CLUSTER__WEIGHTS_OVERLAP": "false"}
    train = cluster.train("--rounds", "2", env=policy)
    answered, failed = cluster.call_until(lambda: train.poll() is not None)
    cluster.ended()
    check(cluster, before + 2)
    assert failed == [] and answered > 0
    overlapped = f"SELECT count(*) FROM phases WHERE phase_id > {phases_before} AND "
    for what in ("state", "weights"):
        assert cluster.sql(f"{overlapped} (seconds ->> '{what}_beside') IS NOT NULL") == [(0,)]
    aborted = {group for (group,) in cluster.sql("SELECT group_id FROM sessions WHERE status = 'aborted'")}
    assert aborted, "no round waits for a straggler"
    assert not aborted & {group for row in cluster.rounds() for group in row.group_ids}
    rollouts = cluster.sql(
        f"SELECT member, count(*) FROM phases WHERE event = 'member_settled' AND phase = 'rollout' "
        f"AND phase_id > {phases_before} GROUP BY member"
    )
    counts = dict(rollouts)
    assert counts.keys() == {"all-0", "all-1", "all-2"}
    generated = [row for row in cluster.rounds()[before:] if not begun_before.issuperset(row.group_ids)]
    assert generated, "both rounds trained on what was left of those before"
    assert min(counts.values()) >= len(generated), "a round takes all, and gives them back; a slow one may join again"


def test_a_product_s_calls_are_answered_through_all_phases_and_its_groups_train(cluster: Cluster) -> None:
    """Its sessions have the tag `serve`; at most one engine of three trains or loads at a time."""
    before, phases_before = len(cluster.rounds()), {row.phase_id for row in cluster.phases()}
    settings = {"SERVE_SHARE": "0.6", "MAX_HOLD_S": "60"}
    train = cluster.train(env={f"WEIR_CLUSTER__{name}": value for name, value in settings.items()})
    made, groups, trained = cluster.made(2), set[str](), set[str]()
    while not (made() and groups & trained):
        assert train.poll() is None, cluster.log
        groups.add(cluster.serve_once())
        trained = {group for row in cluster.rounds()[before:] for group in row.group_ids}
    train.terminate()
    cluster.ended()
    phases = [row for row in cluster.phases() if row.phase_id not in phases_before and row.phase == "train"]
    assert phases, "engines were taken for training"
    for one, other in itertools.combinations(phases, 2):
        apart = (one.ended_us or 0) <= other.began_us or (other.ended_us or 0) <= one.began_us
        assert one.member == other.member or apart, "two of three engines are kept, though two may train"
    cluster.train("--rounds", "1")  # finishes a round that was open
    cluster.ended()
    check(cluster, len(cluster.rounds()))
    calls = cluster.sql(
        "SELECT c.held_ms FROM calls c JOIN sessions s USING (session_id) WHERE s.metadata LIKE '%serve%'"
    )
    assert len(calls) == len(groups) and max(held_ms for (held_ms,) in calls) < 60_000


def test_a_killed_controller_goes_on_where_it_was(cluster: Cluster) -> None:
    while True:  # it is to be killed within a round, which may end between the look and the kill
        first = cluster.train()
        cluster.wait(cluster.made(2))
        cluster.wait(cluster.has_open_round)
        first.kill()
        first.wait()
        if cluster.has_open_round():
            break
    done = len(cluster.rounds())
    cluster.train("--rounds", "2")
    cluster.ended()
    check(cluster, done + 1 + 2)  # the round that was open, which counts for the start before
    still_open = cluster.sql("SELECT member FROM phases WHERE ended_at IS NULL")
    assert len(still_open) == 3, "of the killed one none is left open"


def test_a_killed_training_slot_is_started_again_and_resumes_its_round(cluster: Cluster) -> None:
    before = len(cluster.rounds())
    cluster.train("--rounds", "3")
    cluster.wait(cluster.has_open_round)
    cluster.child("weir.scripts.live.slot_process").kill()
    log = cluster.ended()
    assert "the training slot ended with status -9" in log
    check(cluster, before + 3)


def test_killed_agents_are_started_again_and_their_groups_replaced(cluster: Cluster) -> None:
    before = len(cluster.rounds())
    cluster.train("--rounds", "3")
    cluster.wait(cluster.made(1))
    cluster.child("weir.scripts.live.rollout_process").kill()
    log = cluster.ended()
    assert "the agents ended with status -9" in log
    check(cluster, before + 3)


@pytest.mark.parametrize(("engine", "name"), [("engine-0", "only"), ("engine-1", "both-1")])
def test_a_killed_engine_is_lost_and_joins_again_with_the_newest_weights(
    cluster: Cluster, engine: str, name: str
) -> None:
    before = len(cluster.rounds())
    train = cluster.train()
    cluster.wait(cluster.made(1))
    cluster.kill(engine)  # it starts with the first weights
    cluster.wait(lambda: f"member {name} is lost" in cluster.log)
    cluster.wait(cluster.made(2))
    cluster.wait(lambda: cluster.phase_of(name) in ("rollout", "train", "waits"))
    train.terminate()
    assert "stopped; the next start goes on from here" in cluster.ended()
    done = len(cluster.rounds())
    assert done >= before + 3
    cluster.train("--rounds", "1")  # finishes a round that was open
    cluster.ended()
    check(cluster, len(cluster.rounds()))


def test_a_member_that_the_settings_name_later_joins(cluster: Cluster) -> None:
    file = cluster.folder / "weir.toml"
    whole = file.read_text()
    file.write_text(whole[: whole.index('[[cluster.members]]\nname = "both-2"')])
    cluster.take_out(cluster.engine_urls[2])
    before = {row.phase_id for row in cluster.phases()}
    train = cluster.train()
    cluster.wait(cluster.made(1))
    assert {row.member for row in cluster.phases() if row.phase_id not in before} == {"only", "both-1"}
    file.write_text(whole)
    works = {"rollout", "train"}  # where rounds are short, it may train in all of them and never be lent back
    cluster.wait(
        lambda: any(
            row.member == "both-2" and row.phase in works for row in cluster.phases() if row.phase_id not in before
        )
    )
    assert "member both-2 is taken in" in cluster.log
    cluster.wait(cluster.made(1))
    train.terminate()
    cluster.ended()
    cluster.train("--rounds", "1")  # finishes a round that was open
    cluster.ended()
    check(cluster, len(cluster.rounds()))


def test_a_second_controller_over_the_same_store_is_refused(cluster: Cluster) -> None:
    first = cluster.train()
    cluster.wait(cluster.made(1))
    second = cluster.train("--rounds", "1")
    assert second.wait(240) == 1
    assert "another `weir train` decides over" in cluster.log
    first.terminate()
    assert first.wait(240) == 0


def test_a_round_takes_fewer_groups_where_their_tokens_are_enough(cluster: Cluster) -> None:
    before = {row.weight_version for row in cluster.rounds()}
    batch = 40  # more than wait when the first round begins
    rules = {"BATCH": str(batch), "ROUND_WHEN": '["batch", "tokens"]', "ROUND_TOKENS": "1"}
    cluster.train("--rounds", "3", env={f"WEIR_CLUSTER__{name}": value for name, value in rules.items()})
    cluster.ended()
    rounds = cluster.rounds()
    made = [len(row.group_ids) for row in rounds if row.weight_version not in before]
    sizes = made[-3:]  # a round that was open counts for the start before
    assert len(sizes) == 3 and len(made) <= 4 and min(sizes) < batch, made
    groups = [group for row in rounds for group in row.group_ids]
    assert len(groups) == len(set(groups))
    assert cluster.in_rotation() == set(cluster.engine_urls)
