"""What a host of real members does to the book beyond a simulator: resume, adopt, abandon, and rounds that differ."""

from __future__ import annotations

import pytest

from weir.cluster.book import Book
from weir.cluster.state import Member, Role, Settings


def book_at(version: int, batch: int = 2) -> Book:
    """A book that is resumed at a version, with one member in each role."""
    book = Book(Settings(batch=batch, max_staleness=1), [Member(name="g"), Member(name="t")])
    book.resume(version)
    book.assign(["g"], Role.ROLLOUT)
    book.assign(["t"], Role.TRAIN)
    book.settled("g")
    book.settled("t")
    return book


def adopted(book: Book, version: int) -> int | None:
    """A sample of another host that is ready."""
    sample = book.adopt(version)
    if sample is not None:
        book.judged(sample, 0.0)
    return sample


def test_a_resumed_book_allows_what_a_book_that_trained_so_far_would() -> None:
    book = book_at(5)
    assert (book.state.version, book.state.updates, book.state.samples_allowed) == (5, 5, 4)


def test_adopted_samples_train_before_they_become_too_old_and_others_are_refused() -> None:
    book = book_at(5)
    assert adopted(book, 3) is None, "two versions behind"
    old = [adopted(book, 4) for _ in range(3)]
    assert old == [0, 1, None], "one update can still take samples of version 4, and it takes two"
    new = [adopted(book, 5) for _ in range(3)]
    assert new == [2, 3, None], "the updates from 5 and 6 take four in all"
    assert book.state.samples_allowed == 0
    assert book.train(["t"]) == [0, 1]
    book.trained()
    assert book.staleness == {1: 2}


def test_an_old_sample_is_refused_where_newer_ones_would_become_too_old_for_it() -> None:
    book = book_at(5)
    assert [adopted(book, 5) for _ in range(4)] == [0, 1, 2, 3]
    assert adopted(book, 4) is None, "an update would take it, and leave one of the others too old"


def test_an_adopted_sample_takes_the_place_of_one_that_an_update_that_runs_has_left() -> None:
    book = book_at(5)
    assert [adopted(book, 5) for _ in range(4)] == [0, 1, 2, 3]
    book.train(["t"])
    assert adopted(book, 5) is None, "the update from 6 takes the two that are left"
    assert adopted(book, 4) is None, "no update after the one that runs may take it"


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_another_sample_may_start_for_one_that_was_abandoned_wherever_it_was(steps: int) -> None:
    book = book_at(0)
    (first, *_) = book.start(4)
    if steps > 0:
        book.generated(first)
    if steps > 1:
        book.judged(first, 0.0)
    assert book.state.samples_allowed == 0
    book.abandon(first)
    state = book.state
    assert (state.samples_allowed, state.num_running, state.num_ready, state.judging) == (1, 3, 0, {})
    assert list(book.start(1)) == [4], "its number is not given out again"


def test_an_update_that_took_other_samples_than_it_was_told_consumes_those() -> None:
    book = book_at(0)
    for sample in book.start(4):
        book.generated(sample)
        if sample != 1:
            book.judged(sample, 0.0)
    assert book.train(["t"]) == [0, 2]
    book.judged(1, 0.0)
    book.took([0, 1])
    assert book.trained() == [0, 1]
    assert (book.state.num_ready, book.state.ready, book.state.started) == (2, {0: 2}, 4)


def test_a_round_of_fewer_samples_counts_as_a_batch() -> None:
    book = book_at(0)
    for sample in book.start(2):
        book.generated(sample)
        book.judged(sample, 0.0)
    book.train(["t"])
    book.took([1])
    book.trained()
    assert book.state.samples_allowed == 2 * 2 + 2 - 1 - 2, "one is left over, and may be taken by the next"
    assert book.state.num_ready == 1


def test_a_member_that_did_not_load_goes_on_with_the_weights_that_it_had() -> None:
    book = book_at(0)
    for sample in book.start(2):
        book.generated(sample)
        book.judged(sample, 0.0)
    book.train(["t"])
    book.trained()
    book.load(["g"])
    book.load_failed("g")
    assert book.state.behind == {"g"} and not book.state.num_loading
    book.load(["g"])
    book.loaded("g")
    assert not book.state.behind


def test_a_sample_of_others_has_a_place_where_more_are_started_than_updates_take() -> None:
    book = Book(Settings(batch=2, max_staleness=1, oversample=1.0), [Member(name="g")])
    book.assign(["g"], Role.ROLLOUT)
    book.settled("g")
    book.start(5)
    assert adopted(book, 0) is not None, "one of the others is aborted for it, if need be"
    assert adopted(book, 0) is None
    assert book.abort(2) == [0, 1]
