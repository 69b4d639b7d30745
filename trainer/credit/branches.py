"""Which branches of a session's tree are trained on: all of them, the last, or the longest.

Invariant: pure; a branch is kept or left out whole, but for the calls that it shares with a kept one. Not here: how
branches are credited (`credit.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weir.store.reader import StoredCall

Branch = list[StoredCall]  # from its root to its leaf
Choose = Callable[[Sequence[Branch]], Sequence[Branch]]


def branches_of(calls: Sequence[StoredCall]) -> list[Branch]:
    """The branches of one session, by the start of their leaves. A parent in another session is none."""
    by_id = {call.call_id: call for call in calls}
    continued = {call.parent_call for call in calls}
    leaves = [call for call in calls if call.call_id not in continued]
    return [_up(leaf, by_id) for leaf in sorted(leaves, key=lambda call: (call.started_us, call.call_id))]


def _up(leaf: StoredCall, by_id: dict[str, StoredCall]) -> Branch:
    branch = [leaf]
    while (parent := branch[-1].parent_call) in by_id and parent is not None:
        branch.append(by_id[parent])
    return branch[::-1]


def every_branch(branches: Sequence[Branch]) -> Sequence[Branch]:
    """All of them."""
    return branches


def last_branch(branches: Sequence[Branch]) -> Sequence[Branch]:
    """The one whose leaf started last: what the agent ended with."""
    return branches[-1:]


def longest_branch(branches: Sequence[Branch]) -> Sequence[Branch]:
    """The one with the most sampled tokens; of equals the last."""
    return sorted(branches, key=lambda branch: sum(len(call.output_ids) for call in branch))[-1:]


BRANCHES: dict[str, Choose] = {"all": every_branch, "last": last_branch, "longest": longest_branch}


def on_kept_branches(calls: Sequence[StoredCall], policy: str) -> set[str]:
    """The calls of one session that are on a branch which the named policy keeps."""
    return {call.call_id for branch in BRANCHES[policy](branches_of(calls)) for call in branch}
