"""What policies share: who trains, and assignments that change only what differs."""

from __future__ import annotations

from collections.abc import Iterable

from weir.cluster.state import Assign, Event, Load, Member, Role, State, Tag

OF_SAMPLES = frozenset({Event.SAMPLE_GENERATED, Event.SAMPLE_READY})
"""Events that come in great numbers and change no member."""


def trainers(state: State, *, apart: bool = True, most: int | None = None) -> tuple[str, ...]:
    """The members that train: those that can do nothing else first, then by train_priority.

    They are `most`, or `Settings.train_members`. `apart` leaves at least one member that can generate. Calls with the
    tag `serve` keep theirs in any case, even where nobody trains then.
    """
    able = [member for member in state.members.values() if Tag.TRAIN in member.tags]
    able.sort(key=lambda member: (Tag.ROLLOUT in member.tags, -member.train_priority, member.name))
    chosen = able[: max(1, state.settings.train_members if most is None else most)]
    left = len(generators(state, (member.name for member in chosen)))
    while chosen and Tag.ROLLOUT in chosen[-1].tags:
        if left >= state.serve_least and (left or not apart or len(chosen) == 1):
            break
        chosen.pop()
        left += 1
    return tuple(member.name for member in chosen)


def generators(state: State, without: Iterable[str] = ()) -> tuple[str, ...]:
    """The members that can generate, without some."""
    excluded = frozenset(without)
    return tuple(m.name for m in state.members.values() if Tag.ROLLOUT in m.tags and m.name not in excluded)


def moves(state: State, names: Iterable[str], role: Role) -> list[Assign]:
    """An assignment for those of the members that are free and have another role; none if there are none."""
    found = tuple(name for name in names if _free(state, state.members[name]) and state.members[name].role is not role)
    return [Assign(found, role)] if found else []


def loads(state: State, without: Iterable[str] = ()) -> list[Load]:
    """A load of the newest weights into the members that are behind and do not load yet; none if there are none."""
    excluded = frozenset(without)
    found = tuple(
        sorted(name for name in state.behind if name not in excluded and not state.members[name].loading)
    )  # sorted: a set's order differs between processes
    return [Load(found)] if found else []


def in_place(state: State, names: Iterable[str], role: Role) -> bool:
    """Whether all of the members have the role and do not move; False if there are none."""
    members = [state.members[name] for name in names]
    return bool(members) and all(member.role is role and not member.moving for member in members)


def missing_of_version(state: State) -> int:
    """Samples that the updates from this version take and that were not started."""
    rules = state.settings
    return (state.version + 1) * rules.batch * rules.updates_per_version + state.extra - state.started


def _free(state: State, member: Member) -> bool:
    return not member.moving and not member.loading and member.name not in state.training
