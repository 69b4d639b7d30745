"""Some members generate the next batch while the others train on the last one; both wait for the slower, then swap.

A sample is one version old when it is trained on. With max_staleness 0 it is the synchronous policy.
"""

from __future__ import annotations

from collections.abc import Sequence

from weir.cluster.due import is_due
from weir.cluster.policies.placement import OF_SAMPLES, generators, in_place, loads, moves, trainers
from weir.cluster.state import Action, Event, Role, Start, State, Train


def decide(state: State, event: Event) -> Sequence[Action]:
    """When a batch is complete and the update before it too: load weights, start the next batch, train on this one."""
    if event in OF_SAMPLES and (state.num_running or state.judging or state.training):
        return ()
    training = trainers(state)
    placed: list[Action] = [
        *moves(state, training, Role.TRAIN),
        *moves(state, generators(state, training), Role.ROLLOUT),
    ]
    if placed or state.training or state.num_moving or state.num_loading:
        return placed
    if state.num_running or state.judging:
        return ()
    if state.behind:
        return loads(state)
    batch = state.settings.batch
    allowed = state.samples_allowed
    actions: list[Action] = []
    trains = is_due(state) and state.update_keeps_bound() and in_place(state, training, Role.TRAIN)
    if trains and not state.settings.max_staleness:
        allowed -= state.extra  # none of them may be under way beside the update
    if allowed > 0 and state.rotation:
        actions.append(Start(min(batch + state.extra, allowed)))
    if trains:
        actions.append(Train(training))
    return actions
