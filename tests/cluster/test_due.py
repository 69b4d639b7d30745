"""Rules by name: when an update is due."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from weir.cluster.book import Book
from weir.cluster.config import ClusterConfig
from weir.cluster.description import Rules
from weir.cluster.due import checked_rules, is_due
from weir.cluster.errors import ClusterInvalid
from weir.cluster.policies.by_name import POLICIES
from weir.cluster.simulator.result import Result
from weir.cluster.simulator.simulation import Simulation
from weir.cluster.state import Event, Member, Role, Settings, Tag
from weir.cluster.suite.closed_forms import equal_episodes, servers


def book_with(ready: int, running: int, rules: Settings) -> Book:
    """Two members in their roles, and samples of twelve tokens."""
    book = Book(rules, [Member(name="g"), Member(name="t")])
    book.assign(["g"], Role.ROLLOUT)
    book.assign(["t"], Role.TRAIN)
    book.settled("g")
    book.settled("t")
    book.happened(Event.STARTED, 0.0)
    for number, sample in enumerate(book.start(ready + running)):
        if number < ready:
            book.generated(sample)
            book.judged(sample, 1.0, tokens=12.0)
    return book


def test_tokens_of_ready_samples_make_an_update_due_that_takes_what_is_there() -> None:
    book = book_with(3, 5, Settings(batch=8, when=("tokens",), tokens=36.0))
    assert book.state.ready_tokens == 36 and is_due(book.state)
    assert book.train(["t"]) == [0, 1, 2]
    assert (book.state.ready_tokens, book.state.samples_allowed) == (0, 16 - 8 - 5), "it counts as a batch"
    book.trained()
    assert book.state.version == 1


def test_seconds_count_from_the_last_update_and_again_after_one_that_failed() -> None:
    book = book_with(2, 6, Settings(batch=8, when=("batch", "seconds"), seconds=30.0))
    book.happened(Event.TIME, 29.0)
    assert not is_due(book.state)
    book.happened(Event.TIME, 30.0)
    assert is_due(book.state)
    book.train(["t"])
    book.happened(Event.TIME, 45.0)
    assert book.state.since_update_s == 15.0
    book.training_failed()
    assert book.state.since_update_s == 45.0 and is_due(book.state)


def test_rules_that_are_joined_are_both_needed_and_one_of_the_list_is_enough() -> None:
    book = book_with(2, 6, Settings(batch=8, when=("tokens and seconds", "member_lost"), tokens=24.0, seconds=9.0))
    assert not is_due(book.state)
    book.happened(Event.TIME, 9.0)
    assert is_due(book.state)
    book.happened(Event.TIME, 8.0)
    assert not is_due(book.state)
    book.happened(Event.MEMBER_LOST, 8.5)
    assert is_due(book.state)


def test_fewer_samples_than_the_least_are_never_due_and_a_batch_with_nothing_under_way_always_is() -> None:
    rules = Settings(batch=4, when=("tokens",), tokens=1.0, least=3)
    assert not is_due(book_with(2, 2, rules).state)
    assert is_due(book_with(3, 1, rules).state)
    never = Settings(batch=4, when=("tokens",), tokens=1e9)
    assert not is_due(book_with(4, 1, never).state)
    assert is_due(book_with(4, 0, never).state)


def test_wrong_rules_are_refused_with_what_to_do() -> None:
    with pytest.raises(ClusterInvalid, match="no rule 'often'; there are batch, tokens"):
        checked_rules(["often"], tokens=None, seconds=None)
    with pytest.raises(ClusterInvalid, match="the rule 'seconds' needs a number of seconds"):
        checked_rules(["batch", "batch and seconds"], tokens=None, seconds=None)
    with pytest.raises(ClusterInvalid, match="no rule says when"):
        checked_rules([], tokens=None, seconds=None)


def test_samples_that_smaller_updates_left_are_taken_before_they_are_too_old() -> None:
    book = book_with(2, 6, Settings(batch=4, when=("tokens",), tokens=24.0))
    assert len(book.train(["t"])) == 2
    book.trained()
    for sample in range(2, 8):
        book.generated(sample)
        book.judged(sample, 2.0, tokens=12.0)
    assert book.state.update_keeps_bound()
    assert len(book.train(["t"])) == 6, "more than a batch: all are a version old"
    book.trained()
    assert book.staleness == {0: 2, 1: 6}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"round_when": ["often"]}, "no rule 'often'"),
        ({"round_when": ["seconds"]}, "needs a number of seconds"),
    ],
)
def test_settings_of_a_controller_are_refused_where_a_rule_could_never_hold(
    changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        ClusterConfig.model_validate(changed)
    assert ClusterConfig(round_when=("batch", "tokens and seconds"), round_tokens=1, round_s=1).round_least == 1


def test_a_simulated_update_begins_when_the_time_is_over() -> None:
    """Two servers finish a sample each in 10 s, and KV cache lets no more run; an update every 25 s takes those."""

    def run(rules: Rules) -> Result:
        members = [(2, (Tag.ROLLOUT,)), (1, (Tag.TRAIN,))]
        description = servers(members, rules, update_s=1.0, kv_tokens=10.0)
        return Simulation(description, POLICIES["tags"], episodes=equal_episodes(10.0)).run(updates=8, warmup=3)

    by_time = run(Rules(batch=20, when=("batch", "seconds"), seconds=25.0))
    assert by_time.update_period_s == pytest.approx(25.0, rel=0.2)
    assert run(Rules(batch=20)).update_period_s == pytest.approx(100.0, rel=0.1)
