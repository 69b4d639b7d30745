"""Members with both tags generate until a batch is there, are taken for training, and go back afterwards.

The members that only generate never stop, but for loading weights. What holds:

- Staleness is bounded before a sample starts. Under version v, (v + 1 + max_staleness) batches may have been started in
  all, so the updates from version v + max_staleness can take every sample of version v. It waits for those that are not
  finished, and it takes the oldest first.
- A member is lent back to generation only if the batch is further away than the measured cost of switching.
- The samples in flight are the rotation's KV capacity, without the share of calls with the tag `serve`, over the
  learned cost of a sample, times a share that falls by a tenth when an engine runs out of KV cache and rises a little
  with each update (AIMD).
"""

from __future__ import annotations

from collections.abc import Sequence

from weir.cluster.due import is_due
from weir.cluster.policies.placement import OF_SAMPLES, generators, in_place, loads, moves, trainers
from weir.cluster.state import Action, Event, Role, Start, State, Tag, Train, Tune

SHARE_BOUNDS = (0.25, 4.0)
SHARE_FALLS_BY, SHARE_RISES_BY = 0.9, 0.05


def decide(state: State, event: Event) -> Sequence[Action]:
    """Start what may start, load new weights, and move the members with both tags to where the work is."""
    due = _update_is_due(state)
    actions: list[Action] = [*_tuned(state, event), *_starts(state)]
    if (event is Event.KV_EXHAUSTED or event in OF_SAMPLES) and not due:
        return actions
    training = trainers(state, apart=False)
    actions += moves(state, generators(state, training), Role.ROLLOUT)
    if state.training:
        return actions + loads(state)
    if due:
        actions += loads(state, without=training)
        if in_place(state, training, Role.TRAIN):
            return [*actions, Train(training)]
        return actions + moves(state, training, Role.TRAIN)
    return actions + loads(state) + _lent(state, training)


def _update_is_due(state: State) -> bool:
    if state.training or not is_due(state):
        return False
    return state.update_keeps_bound()


def _starts(state: State) -> list[Action]:
    """As many samples as staleness and KV capacity allow, unless a member generates with older weights."""
    if state.behind or not state.rotation:
        return []
    allowed = state.samples_allowed
    if allowed > 0 and state.episode_tokens and state.kv_tokens:
        fit = state.in_flight_share * (1 - state.settings.serve_share) * state.kv_tokens / state.episode_tokens
        allowed = min(allowed, int(max(fit, 1)) - state.num_running)
    return [Start(allowed)] if allowed > 0 else []


def _lent(state: State, training: Sequence[str]) -> list[Action]:
    """Members that wait for the next update generate meanwhile, where that is worth the switch."""
    both = [name for name in training if Tag.ROLLOUT in state.members[name].tags]
    only = [name for name in training if Tag.ROLLOUT not in state.members[name].tags]
    if _lending_pays(state):
        return [*moves(state, only, Role.TRAIN), *moves(state, both, Role.ROLLOUT)]
    idle = [name for name in both if state.members[name].role is Role.NONE]
    return [*moves(state, [*only, *idle], Role.TRAIN)]


def _lending_pays(state: State) -> bool:
    if not state.rotation or not state.finish_rate or not state.switch_s:
        return True
    wait_s = (state.settings.batch - state.num_ready) / state.finish_rate
    if not state.update_keeps_bound():
        wait_s = max(wait_s, state.episode_s / 2)
    return wait_s > state.switch_s


def _tuned(state: State, event: Event) -> list[Action]:
    lowest, highest = SHARE_BOUNDS
    if event is Event.KV_EXHAUSTED:
        return [Tune(max(lowest, state.in_flight_share * SHARE_FALLS_BY))]
    if event is Event.TRAINED:
        return [Tune(min(highest, state.in_flight_share + SHARE_RISES_BY))]
    return []
