"""When an update is due: rules by name over the state, combined by "and" and by a list of which one is enough.

A rule is a question to the state. A batch of ready samples while nothing is under way is due under any rules, so that
no choice of rules stops a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from weir.cluster.errors import ClusterInvalid
from weir.cluster.state import Event, Settings, State

AND = " and "
BATCH, TOKENS, SECONDS, KV_EXHAUSTED = "batch", "tokens", "seconds", "kv_exhausted"
EVENTS = frozenset({Event.MEMBER_LOST, Event.MEMBER_JOINED, Event.KV_EXHAUSTED})
"""Events that the state keeps until the next update, as they may make one due."""

RULES: dict[str, Callable[[State], bool]] = {
    BATCH: lambda state: state.num_ready >= state.settings.batch,
    TOKENS: lambda state: state.ready_tokens >= state.settings.tokens,
    SECONDS: lambda state: state.since_update_s >= state.settings.seconds,
    "member_lost": lambda state: Event.MEMBER_LOST in state.events,
    "member_joined": lambda state: Event.MEMBER_JOINED in state.events,
    KV_EXHAUSTED: lambda state: Event.KV_EXHAUSTED in state.events,
}


def is_due(state: State) -> bool:
    """Whether an update may take the ready samples, as far as the rules say."""
    rules = state.settings
    if state.num_ready < fewest(state):
        return False
    if state.num_ready >= rules.batch and not state.num_running and not state.judging:
        return True
    return any(all(RULES[name](state) for name in one.split(AND)) for one in rules.when)


def fewest(state: State) -> int:
    """An update takes no fewer samples."""
    return max(1, min(state.settings.least, state.settings.batch))


def uses(rules: Settings, name: str) -> bool:
    """Whether a rule is among those that decide."""
    return any(name in one.split(AND) for one in rules.when)


def checked_rules(when: Iterable[str], *, tokens: float | None, seconds: float | None) -> tuple[str, ...]:
    """The rules, if all names are known and those that need a number have one.

    Raises:
        ClusterInvalid: One is unknown, or lacks its number.
    """
    rules = tuple(when)
    names = {name for one in rules for name in one.split(AND)}
    if unknown := sorted(names - RULES.keys()):
        raise ClusterInvalid(
            f"there is no rule {unknown[0]!r}; there are {', '.join(RULES)}, which `and` joins: 'tokens and seconds'"
        )
    if not rules:
        raise ClusterInvalid(f"no rule says when an update is due: name one of {', '.join(RULES)}")
    for name, number in ((TOKENS, tokens), (SECONDS, seconds)):
        if name in names and not number:
            raise ClusterInvalid(f"the rule {name!r} needs a number of {name}")
    return rules
