"""The state and the metrics of several workers as those of one proxy."""

from prometheus_client.parser import text_string_to_metric_families

from weir.proxy.control.totals import total_metrics, total_state
from weir.proxy.metrics import Metrics


def worker(*, finished: int, held_s: float, gate_open: float) -> bytes:
    metrics = Metrics()
    metrics.gauge("weir_gate_open", "1 while the gate is open.", lambda: gate_open)
    metrics.calls.labels(dialect="chat", finish="stop").inc(finished)
    metrics.hold_seconds.observe(held_s)
    return metrics.exposition()


def samples(exposition: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(exposition.decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def heads(exposition: bytes) -> list[str]:
    return [line for line in exposition.decode().splitlines() if line.startswith("#")]


def test_one_worker_alone_gives_its_own_metrics() -> None:
    alone = worker(finished=3, held_s=0.2, gate_open=1)
    assert total_metrics([alone]) is alone


def test_samples_are_added_and_families_keep_their_names_types_and_order() -> None:
    first, second = worker(finished=3, held_s=0.2, gate_open=1), worker(finished=4, held_s=7.0, gate_open=0)
    total = total_metrics([first, second])
    assert heads(total) == heads(first)
    one, other, both = samples(first), samples(second), samples(total)
    assert both.keys() == one.keys()
    for key, value in both.items():
        least = key[0] == "weir_gate_open" or key[0].endswith("_created")
        assert value == (min(one[key], other[key]) if least else one[key] + other[key]), key
    assert both["weir_calls_total", (("dialect", "chat"), ("finish", "stop"))] == 7
    assert both["weir_hold_seconds_bucket", (("le", "1.0"),)] == 1
    assert both["weir_hold_seconds_bucket", (("le", "+Inf"),)] == 2


def test_the_gate_of_a_proxy_is_open_only_if_all_are_and_versions_are_compared_as_numbers() -> None:
    states = [
        {"gate": "open", "in_flight": 1, "draining": False, "record_failure": None, "weight_version": "9"},
        {"gate": "closed", "in_flight": 2, "draining": True, "record_failure": "disk full", "weight_version": "10"},
    ]
    total = total_state(states)
    assert (total["gate"], total["in_flight"], total["draining"]) == ("closed", 3, True)
    assert (total["record_failure"], total["weight_version"], total["announced_version"]) == ("disk full", "10", None)
