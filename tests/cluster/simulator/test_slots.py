"""Places for sessions: as many as the limit, in order, also where sessions that wait are aborted."""

from __future__ import annotations

from weir.cluster.simulator.engine import Request
from weir.cluster.simulator.slots import Slots
from weir.cluster.workloads.episode import Episode


def request(serial: int) -> Request:
    return Request(serial, 0, Episode((0.0,), (1.0,), (0.0,)), 0.0)


def test_sessions_begin_in_order_and_those_that_are_aborted_before_leave_their_place_to_others() -> None:
    slots, (a, b, c, d, e) = Slots(2), map(request, range(5))
    assert [slots.enter(one) for one in (a, b, c, d, e)] == [True, True, False, False, False]
    assert slots.leave([a, c]) == [d]
    assert slots.leave([d]) == [e]
    assert slots.leave([b, e]) == []
    assert slots.enter(a)


def test_without_a_limit_all_begin_at_once() -> None:
    slots, (a, b) = Slots(0), map(request, range(2))
    assert slots.enter(a) and slots.enter(b)
    assert slots.leave([a, b]) == []
