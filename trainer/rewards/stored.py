"""Rewards that are in the store before the round: read at the claim and pinned in the round's manifest.

Invariant: rewards that arrive after the claim change nothing. The latest reward of a name counts. A session's reward
counts for its last call or, with trajectory credit, for the last call of each of its branches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.rewards import rewards_of
from weir.store.reader import StoredCall
from weir.trainer.credit.samples import is_judged
from weir.trainer.rewards.answers import Answer, SourceResult
from weir.trainer.settings.reward_terms import Terms
from weir.trainer.skip import Skip

StoredRewards = dict[str, dict[str, float]]  # reward → call → value


def stored_names(terms: Terms) -> list[str]:
    """The names of the rewards that come from the store."""
    return [name for name, term in terms.items() if term.source == "stored"]


def read_rewards(
    catalog: Catalog, names: Sequence[str], sessions: Mapping[str, Sequence[StoredCall]], *, every_branch: bool
) -> StoredRewards:
    """The current rewards of the sessions' calls in the store."""
    if not names:
        return {}
    found: StoredRewards = {name: {} for name in names}
    for row in rewards_of(catalog, list(sessions), names):  # oldest first, so that later ones win
        calls = sessions[row.session_id]
        rewarded = [row.call_id] if row.call_id is not None else _last_calls(calls, every_branch=every_branch)
        found[row.name].update(dict.fromkeys(rewarded, row.value))
    for name in names:
        _fill_earlier(found[name], sessions.values())
    return found


def joined_rewards(parts: Iterable[StoredRewards]) -> StoredRewards:
    """The rewards of several groups, merged."""
    joined: StoredRewards = {}
    for part in parts:
        for name, values in part.items():
            joined.setdefault(name, {}).update(values)
    return joined


def lacks_rewards(rewards: StoredRewards, sessions: Mapping[str, Sequence[StoredCall]]) -> bool:
    """Whether some reward is missing for all answers of a session that has answers."""
    answered = [[call.call_id for call in calls if is_judged(call)] for calls in sessions.values()]
    return any(calls and not set(calls) & set(values) for values in rewards.values() for calls in answered)


def stored_rewards(values: Mapping[str, float], answers: Sequence[Answer]) -> SourceResult:
    """The pinned rewards of one name; an answer without one is excluded."""
    calls = [answer.call.call_id for answer in answers]
    return SourceResult(
        values={call_id: values[call_id] for call_id in calls if call_id in values},
        without={call_id: Skip.UNREWARDED for call_id in calls if call_id not in values},
    )


def _last_calls(calls: Sequence[StoredCall], *, every_branch: bool) -> list[str]:
    answered = [call for call in calls if is_judged(call)]
    if not every_branch:
        return [call.call_id for call in answered[-1:]]
    continued = {call.parent_call for call in answered}
    return [call.call_id for call in answered if call.call_id not in continued]


def _fill_earlier(values: dict[str, float], sessions: Iterable[Sequence[StoredCall]]) -> None:
    """Set the missing rewards of a session that has any to 0."""
    for calls in sessions:
        if any(call.call_id in values for call in calls):
            for call in calls:
                values.setdefault(call.call_id, 0.0)
