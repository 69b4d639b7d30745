"""The queue: order of arrival among equals, turns between keys and sessions, places that are kept, removal at once."""

import random
from collections import Counter

import pytest

from weir.proxy.engines.fair_queue import FairQueue, Ticket

NOW_US = 10**9


def drained(queue: FairQueue) -> list[Ticket]:
    return [queue.pop(NOW_US + number) for number in range(len(queue))]


def test_calls_of_a_session_each_go_in_the_order_of_arrival() -> None:
    tickets = [Ticket(None, f"s{number}", number) for number in range(1000)]
    shuffled = random.Random(0).sample(tickets, 1000)
    queue = FairQueue()
    for ticket in shuffled:
        queue.push(ticket)
    assert drained(queue) == tickets


def test_a_session_with_many_calls_does_not_keep_others_waiting() -> None:
    queue = FairQueue()
    for number in range(100):
        queue.push(Ticket(None, "greedy", number))
    queue.push(Ticket(None, "modest", 200))
    assert [ticket.session for ticket in drained(queue)[:3]] == ["greedy", "modest", "greedy"]


def test_a_session_is_not_starved_by_sessions_that_keep_coming() -> None:
    queue = FairQueue()
    for number in range(3):
        queue.push(Ticket(None, "three", number))
    gone = []
    for step in range(10):
        queue.push(Ticket(None, f"new{step}", 100 + step))
        gone.append(queue.pop(100 + step).session)
    assert gone.count("three") == 3


def test_keys_are_served_equally_often_whatever_their_number_of_calls_and_sessions() -> None:
    queue = FairQueue()
    for number in range(4900):
        queue.push(Ticket("large", f"s{number}", number))
    for number in range(100):
        queue.push(Ticket("small", "one", 5000 + number))
    first = drained(queue)[:200]
    assert Counter(ticket.key for ticket in first) == {"large": 100, "small": 100}
    assert [ticket.arrived_us for ticket in first if ticket.key == "large"] == list(range(100))


def test_a_key_that_comes_late_has_no_turns_to_make_up() -> None:
    queue = FairQueue()
    for number in range(50):
        queue.push(Ticket("early", f"s{number}", number))
    for _ in range(20):
        queue.pop(NOW_US)
    for number in range(20):
        queue.push(Ticket("late", f"t{number}", 100 + number))
    assert Counter(ticket.key for ticket in drained(queue)[:10]) == {"early": 5, "late": 5}


def test_equal_keys_and_sessions_keep_the_order_of_arrival_within_a_twentieth() -> None:
    draw = random.Random(1)
    tickets = [Ticket(draw.choice("abc"), f"s{number}", number) for number in range(5000)]
    queue = FairQueue()
    for ticket in tickets:
        queue.push(ticket)
    moved = [abs(ticket.arrived_us - place) for place, ticket in enumerate(drained(queue))]
    assert max(moved) < 0.05 * 5000


def test_a_call_that_comes_back_gets_its_place_again() -> None:
    queue = FairQueue()
    for number in range(10):
        queue.push(Ticket(None, "same" if number < 5 else f"s{number}", number))
    first, second = queue.pop(NOW_US), queue.pop(NOW_US)
    queue.push(second)
    queue.push(first)
    assert [queue.pop(NOW_US), queue.pop(NOW_US)] == [first, second]


def test_a_call_that_never_waited_comes_back_by_its_arrival() -> None:
    queue = FairQueue()
    sent_at_once = Ticket(None, "old", 1)
    for number in range(10, 20):
        queue.push(Ticket(None, f"s{number}", number))
    queue.push(sent_at_once)
    assert queue.pop(NOW_US) is sent_at_once


@pytest.mark.parametrize("share", [0.2, 0.9])
def test_removed_calls_do_not_count_and_do_not_change_the_order_of_the_others(share: float) -> None:
    draw = random.Random(2)
    tickets = [Ticket(draw.choice("ab"), f"s{draw.randrange(200)}", number) for number in range(1000)]
    left = {ticket.number for ticket in tickets if draw.random() < share}
    with_all, without = FairQueue(), FairQueue()
    for ticket in tickets:
        with_all.push(ticket)
    for ticket in tickets:
        if ticket.number in left:
            with_all.remove(ticket)
    assert len(with_all) == 1000 - len(left) == len(list(with_all))
    for ticket in tickets:
        if ticket.number not in left:
            without.push(Ticket(ticket.key, ticket.session, ticket.arrived_us))
    gone = [with_all.pop(NOW_US + number) for number in range(len(with_all))]
    assert not any(ticket.number in left for ticket in gone)
    assert {ticket.arrived_us for ticket in gone} == {ticket.arrived_us for ticket in drained(without)}
    for session in {ticket.session for ticket in gone}:
        for key in "ab":
            arrivals = [t.arrived_us for t in gone if (t.key, t.session) == (key, session)]
            assert arrivals == sorted(arrivals)


def test_an_empty_queue_has_no_next_call() -> None:
    queue = FairQueue()
    queue.push(only := Ticket(None, "s", 1))
    queue.remove(only)
    with pytest.raises(IndexError):
        queue.pop(NOW_US)
