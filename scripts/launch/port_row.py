"""The ports of a run's servers in a row behind one setting, `placement.first_port`.

Invariant: every process that reads the same settings finds the same ports; a port that is set by itself stays. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from weir.scripts.launch.errors import UsageError

if TYPE_CHECKING:
    from weir.scripts.launch.settings import Settings

# In their order from the first; the engines come last, because they take `engine.count` of them.
ROW = (
    *(("proxy", "port"), ("ui", "port"), ("kernel_eval", "port"), ("router", "port")),
    *(("router", "prometheus_port"), ("engine", "port")),
)
HIGHEST = 65535
USUAL_ROW = 18700  # proposed where it is free: below the ports that systems give to outgoing connections


def row_length(num_engines: int) -> int:
    """How many ports the servers of a run take."""
    return len(ROW) - 1 + max(1, num_engines)


def in_row(settings: Settings) -> Settings:
    """The settings with the ports that `placement.first_port` gives. Raises `UsageError` where there are too few."""
    first = settings.placement.first_port
    if first is None:
        return settings
    last = first + row_length(settings.engine.count) - 1
    if last > HIGHEST:
        raise UsageError(
            f"placement.first_port = {first}: the servers of this run need the ports up to {last}, and the highest is "
            f"{HIGHEST}; set a lower one"
        )
    ports: dict[str, dict[str, int]] = defaultdict(dict)
    for port, (section, key) in enumerate(ROW, first):
        if key not in getattr(settings, section).model_fields_set:
            ports[section][key] = port
    sections = {name: getattr(settings, name).model_copy(update=keys) for name, keys in ports.items()}
    return settings.model_copy(update=sections)
