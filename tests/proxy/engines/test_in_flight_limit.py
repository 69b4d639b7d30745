"""The limit on calls in flight: grows by rounds and answers, shrinks by refusals, learns nothing from the dead."""

from weir.proxy.engines.in_flight_limit import START, UNPROVEN, InFlightLimit


def refuse(limit: InFlightLimit, number: int, *, sent_s: float, now_s: float) -> None:
    for _ in range(number):
        limit.refused(sent_s, now_s)


def test_rounds_double_it_up_to_what_is_likely_to_be_taken_and_no_further() -> None:
    limit = InFlightLimit(8192)
    seen = [limit.calls]
    for _ in range(4):
        limit.round_passed()
        seen.append(limit.calls)
    assert seen == [START, 512, UNPROVEN, UNPROVEN, UNPROVEN]


def test_answers_raise_it_by_one_each_up_to_the_setting() -> None:
    limit = InFlightLimit(300)
    for _ in range(10):
        limit.answered(calls_wait=True)
    assert limit.calls == START + 10
    for _ in range(1000):
        limit.answered(calls_wait=True)
    assert limit.calls == 300


def test_answers_do_not_raise_what_nobody_waits_for() -> None:
    limit = InFlightLimit(8192)
    for _ in range(100):
        limit.answered(calls_wait=False)
    assert limit.calls == START


def test_a_burst_of_refusals_is_one_share_and_half_a_call_each() -> None:
    limit = InFlightLimit(8192)
    refuse(limit, 100, sent_s=1.0, now_s=2.0)
    assert limit.calls == 180  # 256 · 0.9 − 50
    refuse(limit, 1, sent_s=1.9, now_s=3.0)  # it was sent before the decrease
    assert limit.calls == 179
    refuse(limit, 1, sent_s=2.5, now_s=3.0)
    assert limit.calls == 161  # 179.9 · 0.9 − 0.5


def test_it_comes_down_to_what_an_upstream_holds_and_stays_near_it() -> None:
    """An upstream that answers at most 40 at a time and refuses the rest at once."""
    limit, now_s, refused = InFlightLimit(8192), 0.0, 0
    for turn in range(200):
        sent_s, now_s = now_s + 0.1, now_s + 0.2
        over = max(0, limit.calls - 40)
        refuse(limit, over, sent_s=sent_s, now_s=now_s)
        if turn > 20:
            refused += over
            assert 20 <= limit.calls <= 60
        for _ in range(min(40, limit.calls)):
            limit.answered(calls_wait=True)
        now_s += 0.1
    assert refused < 0.1 * 180 * 40


def test_a_dead_upstream_brings_it_to_one_and_what_was_taken_is_reached_again_in_seconds() -> None:
    limit = InFlightLimit(8192)
    for turn in range(30):
        refuse(limit, limit.calls, sent_s=turn + 0.5, now_s=turn + 1.0)
    assert limit.calls == 1
    for _ in range(10):
        limit.round_passed()
    assert limit.calls == UNPROVEN


def test_after_a_pause_it_begins_low_and_comes_back_in_rounds() -> None:
    limit = InFlightLimit(8192)
    for _ in range(4000):
        limit.answered(calls_wait=True)
    learned = limit.calls
    limit.restart()
    assert limit.calls == START
    for _ in range(5):
        limit.round_passed()
    assert limit.calls == learned
