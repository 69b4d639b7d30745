"""One state and one metrics exposition for all workers of a proxy: numbers are added.

Invariant: the total of one worker is what that worker reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

_MINIMUM = ("weir_gate_open",)  # 1 only where it is 1 in every worker
_CREATED = "_created"


def total_state(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One state of several; the first worker's for values that cannot be added. The gate is open if all are."""
    total = dict(states[0])
    for name, first in total.items():
        values = [state[name] for state in states if state.get(name) is not None]
        if isinstance(first, bool):
            total[name] = any(values)
        elif isinstance(first, int | float):
            total[name] = sum(values)
    total["gate"] = next((state["gate"] for state in states if state["gate"] != "open"), "open")
    total["record_failure"] = next((state["record_failure"] for state in states if state.get("record_failure")), None)
    for name in ("weight_version", "announced_version"):
        versions = [str(state[name]) for state in states if state.get(name) is not None]
        total[name] = max(versions, key=_version_order) if versions else None
    return total


def total_metrics(expositions: Sequence[bytes]) -> bytes:
    """One text exposition of several, with the samples of equal names and labels added."""
    if len(expositions) == 1:
        return expositions[0]
    registry = CollectorRegistry()
    registry.register(_Totals(expositions))
    return generate_latest(registry)


class _Totals(Collector):
    """The families of several expositions as one."""

    def __init__(self, expositions: Sequence[bytes]) -> None:
        self._expositions = expositions

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
        for exposition in self._expositions:
            for family in text_string_to_metric_families(exposition.decode()):
                families.setdefault(family.name, family)
                _add(values.setdefault(family.name, {}), family)
        for name, family in families.items():
            family.samples = [Sample(sample, dict(labels), value) for (sample, labels), value in values[name].items()]
        return families.values()


def _add(values: dict[tuple[str, tuple[tuple[str, str], ...]], float], family: Metric) -> None:
    takes_least = family.name in _MINIMUM or family.name.endswith(_CREATED)
    for sample in family.samples:
        key = (sample.name, tuple(sample.labels.items()))
        earlier = values.get(key)
        if earlier is None:
            values[key] = sample.value
        else:
            values[key] = min(earlier, sample.value) if takes_least else earlier + sample.value


def _version_order(version: str) -> tuple[int, str]:
    """Versions by number; names come before all numbers."""
    return (int(version), "") if version.isdecimal() else (-1, version)
