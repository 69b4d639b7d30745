"""The policies by the names under which a user asks for them."""

from __future__ import annotations

from weir.cluster.policies import disaggregated, one_step_off, sync_colocated, tags
from weir.cluster.policies.oversampling import aborts_stragglers
from weir.cluster.policies.serving import keeps_serving
from weir.cluster.state import Policy

POLICIES: dict[str, Policy] = {
    "sync_colocated": keeps_serving(aborts_stragglers(sync_colocated.decide)),
    "disaggregated": keeps_serving(aborts_stragglers(disaggregated.decide)),
    "one_step_off": keeps_serving(aborts_stragglers(one_step_off.decide)),
    "tags": keeps_serving(aborts_stragglers(tags.decide, lambda rules: rules.max_staleness)),
}
