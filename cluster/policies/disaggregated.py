"""Some members generate, the others train, one after the other: each half waits for the other. No sample is stale."""

from __future__ import annotations

from collections.abc import Sequence

from weir.cluster.due import is_due
from weir.cluster.policies.placement import OF_SAMPLES, generators, in_place, loads, missing_of_version, moves, trainers
from weir.cluster.state import Action, Event, Role, Start, State, Train


def decide(state: State, event: Event) -> Sequence[Action]:
    """Generate a batch on one half, train on it on the other, load the weights, and begin again."""
    enough = is_due(state) and state.update_keeps_bound()
    if event in OF_SAMPLES and (state.training or not enough):
        return ()
    training = trainers(state)
    placed: list[Action] = [
        *moves(state, training, Role.TRAIN),
        *moves(state, generators(state, training), Role.ROLLOUT),
    ]
    if placed or state.training or state.num_moving or state.num_loading:
        return placed
    if enough:
        return [Train(training)] if in_place(state, training, Role.TRAIN) else ()
    missing = missing_of_version(state)
    return loads(state) or ([Start(missing)] if missing > 0 and state.rotation else ())
