"""More samples than updates take (DAPO): once enough are ready, the rest of a version's is aborted, or kept.

Invariants: without `Settings.oversample` a policy is the policy itself; of a version's samples no more are aborted than
were started beyond what its updates take; a sample that an update has is never aborted. A sample that would become too
old because of the surplus is aborted also where stragglers are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weir.cluster.state import Abort, Action, Event, Policy, Settings, State

Ahead = Callable[[Settings], float]
"""How many versions ahead of its own a policy starts samples."""


def aborts_stragglers(policy: Policy, ahead: Ahead = lambda _: 0) -> Policy:
    """The policy under `Settings.oversample`; it decides the rest once the host has aborted the samples."""

    def decide(state: State, event: Event) -> Sequence[Action]:
        surplus = _surplus(state, ahead(state.settings)) if state.extra else 0
        return [Abort(surplus)] if surplus > 0 else policy(state, event)

    return decide


def _surplus(state: State, ahead: float) -> int:
    """How many samples are to be aborted now: once a batch is ready, and all that are left over at a version's last."""
    rules = state.settings
    if state.training or state.num_ready < rules.batch:
        return 0
    unfinished = state.num_running + sum(state.judging.values())
    beyond = state.started - int((state.version + 1 + ahead) * rules.batch * rules.updates_per_version)
    wanted = state.too_many
    if state.is_last_update and rules.stragglers == "abort":
        wanted = max(wanted, min(unfinished, beyond))
    return min(wanted, state.extra)
