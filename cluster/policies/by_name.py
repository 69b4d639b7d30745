"""The policies by the names under which a user asks for them."""

from __future__ import annotations

from weir.cluster.policies import disaggregated, one_step_off, sync_colocated, tags
from weir.cluster.state import Policy

POLICIES: dict[str, Policy] = {
    "sync_colocated": sync_colocated.decide,
    "disaggregated": disaggregated.decide,
    "one_step_off": one_step_off.decide,
    "tags": tags.decide,
}
