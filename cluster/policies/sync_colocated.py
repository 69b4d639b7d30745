"""All members generate one batch, then all train on it. Nothing overlaps, and no sample is stale.

Those that calls with the tag `serve` keep do not train.
"""

from __future__ import annotations

from collections.abc import Sequence

from weir.cluster.due import is_due
from weir.cluster.policies.placement import OF_SAMPLES, generators, in_place, loads, missing_of_version, moves, trainers
from weir.cluster.state import Action, Event, Role, Start, State, Tag, Train


def decide(state: State, event: Event) -> Sequence[Action]:
    """Generate a batch on all members, then train on all that can."""
    enough = is_due(state) and state.update_keeps_bound()
    if state.training or state.num_moving or state.num_loading or (event in OF_SAMPLES and not enough):
        return ()
    if enough:
        training = _trainers(state)
        serving = moves(state, generators(state, training), Role.ROLLOUT) if state.serve_least else []
        return [*serving, *moves(state, training, Role.TRAIN)] or (
            [Train(training)] if in_place(state, training, Role.TRAIN) else ()
        )
    changes: Sequence[Action] = moves(state, generators(state), Role.ROLLOUT) or loads(state)
    missing = missing_of_version(state)
    return changes or ([Start(missing)] if missing > 0 and state.rotation else ())


def _trainers(state: State) -> tuple[str, ...]:
    if state.serve_least:
        return trainers(state, apart=False, most=len(state.members))
    return tuple(name for name, member in state.members.items() if Tag.TRAIN in member.tags)
