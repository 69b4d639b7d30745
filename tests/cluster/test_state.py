"""What a cluster's state says of samples: how many may be started, and whether an update leaves the others time."""

from __future__ import annotations

from weir.cluster.state import Settings, State


def test_no_surplus_is_started_that_would_only_be_aborted() -> None:
    rules = Settings(batch=2, max_staleness=0, oversample=1.0)
    gathering = State(settings=rules, version=1, updates=1, started=4, running={1: 1}, num_running=1)
    assert gathering.samples_allowed == 2
    assert State(settings=rules, version=1, updates=1, started=4, ready={1: 2}, num_ready=2).samples_allowed == 0
    last = State(settings=rules, version=1, updates=1, started=4, training=frozenset({"m0"}))
    assert last.samples_allowed == 0
    two = Settings(batch=2, max_staleness=0, oversample=1.0, updates_per_version=2)
    first_of_two = State(settings=two, version=1, updates=2, started=8, training=frozenset({"m0"}))
    assert first_of_two.samples_allowed == 2


def test_an_update_waits_for_samples_that_later_updates_cannot_all_take() -> None:
    """Versions 1 and 2 have one update each left for the two samples of version 0, whichever samples this one takes."""
    rules = Settings(batch=1, max_staleness=2)
    crowded = State(settings=rules, version=1, updates=1, running={0: 2}, num_running=2, ready={1: 1}, num_ready=1)
    assert not crowded.update_keeps_bound()
    crowded.running, crowded.ready = {0: 1}, {0: 1, 1: 1}
    assert crowded.update_keeps_bound()
    crowded.settings = Settings(batch=1, max_staleness=3)
    crowded.running = {0: 2}
    assert crowded.update_keeps_bound()
