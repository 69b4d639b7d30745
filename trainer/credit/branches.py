"""Selects the branches of a session's tree that are judged and trained on: all, the last, or the longest.

Invariant: pure; a branch is kept or dropped whole, except for calls that it shares with a kept branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weir.store.reader import StoredCall

Branch = list[StoredCall]  # from its root to its leaf
Choose = Callable[[Sequence[Branch]], Sequence[Branch]]


def branches_of(calls: Sequence[StoredCall]) -> list[Branch]:
    """The branches of one session, ordered by the start of their leaves; a parent in another session does not count."""
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
    """All branches."""
    return branches


def last_branch(branches: Sequence[Branch]) -> Sequence[Branch]:
    """The branch whose leaf started last."""
    return branches[-1:]


def longest_branch(branches: Sequence[Branch]) -> Sequence[Branch]:
    """The branch with the most sampled tokens; the last of equal ones."""
    return sorted(branches, key=lambda branch: sum(len(call.output_ids) for call in branch))[-1:]


BRANCHES: dict[str, Choose] = {"all": every_branch, "last": last_branch, "longest": longest_branch}


def on_kept_branches(calls: Sequence[StoredCall], policy: str) -> set[str]:
    """The ids of one session's calls that are on a branch which the named policy keeps."""
    return {call.call_id for branch in BRANCHES[policy](branches_of(calls)) for call in branch}
