"""What the workers of one proxy say of themselves, put together: their states and their Prometheus metrics.

Numbers are added. Invariant: one worker alone gives what it gave. Not here: asking the workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

_LEAST = ("weir_gate_open",)  # 1 only where it is 1 in every worker
_CREATED = "_created"


def total_state(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One state of several; of what cannot be added, the first worker's is taken. The gate is open if all are."""
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
        total[name] = max(versions, key=_number) if versions else None
    return total


def total_metrics(expositions: Sequence[bytes]) -> bytes:
    """One text exposition of several, with the samples of equal names and labels added."""
    if len(expositions) == 1:
        return expositions[0]
    heads: dict[str, list[str]] = {}
    samples: dict[str, dict[str, float]] = {}
    for exposition in expositions:
        _collect(exposition.decode().splitlines(), heads, samples)
    lines = []
    for family, head in heads.items():
        lines += head
        lines += [f"{name} {value!r}" for name, value in samples[family].items()]
    return "\n".join([*lines, ""]).encode()


def _collect(lines: Iterable[str], heads: dict[str, list[str]], samples: dict[str, dict[str, float]]) -> None:
    family = ""
    for line in lines:
        if line.startswith("# HELP "):
            family = line.split(" ", 3)[2]
            heads.setdefault(family, [])
            samples.setdefault(family, {})
        if line.startswith("#"):
            if line not in heads[family]:
                heads[family].append(line)
            continue
        name, _, text = line.rpartition(" ")
        found, value = samples[family].get(name), float(text)
        if found is None:
            samples[family][name] = value
        else:
            least = family in _LEAST or family.endswith(_CREATED)
            samples[family][name] = min(found, value) if least else found + value


def _number(version: str) -> tuple[int, str]:
    """Versions by number; what is no number comes first."""
    return (int(version), "") if version.isdecimal() else (-1, version)
