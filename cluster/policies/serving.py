"""Engines that calls with the tag `serve` keep: what a policy decides, without what would leave them too few.

A product's call waits for no phase: members leave the rotation, or load weights, only as long as enough others take
calls. What is left out is decided again at the next event, when those that were on their way have arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weir.cluster.state import Action, Assign, Event, Load, Policy, Role, State


def keeps_serving(policy: Policy) -> Policy:
    """The policy under `Settings.serve_share`; without one it is the policy itself."""

    def decide(state: State, event: Event) -> Sequence[Action]:
        actions = policy(state, event)
        return list(_kept(state, actions)) if state.serve_least else actions

    return decide


def _kept(state: State, actions: Iterable[Action]) -> Iterable[Action]:
    least, serving = state.serve_least, state.serving
    actions = list(actions)
    arrives = any(member.moving and member.role is Role.ROLLOUT for member in state.members.values()) or any(
        isinstance(action, Assign) and action.role is Role.ROLLOUT for action in actions
    )
    is_last = not arrives and not state.num_loading  # then nobody is waited for: it loads while its calls wait
    for action in actions:
        match action:
            case Assign(names, role) if role is not Role.ROLLOUT:
                names = _spared(names, serving, len(serving) - least)
                serving -= {*names}
                if names:
                    yield Assign(names, role)
            case Load(names):
                spare = len(serving) - least
                names = _spared(names, serving, 1 if spare <= 0 and is_last else spare)
                serving -= {*names}
                is_last = is_last and not names
                if names:
                    yield Load(names)
            case _:
                yield action


def _spared(names: Iterable[str], serving: set[str], spare: int) -> tuple[str, ...]:
    """Those that take no calls, and as many of the others as can be spared."""
    kept = []
    for name in names:
        if name in serving:
            if spare <= 0:
                continue
            spare -= 1
        kept.append(name)
    return tuple(kept)
