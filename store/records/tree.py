"""Parents of calls: a pure function of the recorded set, whatever the order in which it was recorded.

The parent of a call is the call whose prompt and output ids (its *end*) are the longest proper prefix of the call's
prompt ids. Among calls with the same end, one of the same session is preferred, then the latest that finished before
the call started; where several are equally good, the link is marked ambiguous. Calls without ids have no relatives.

Ends are found by chained xxh3-128 hashes over blocks of 256 tokens with a fixed seed, and confirmed by comparing the
tokens; the work is proportional to the number of tokens, not to the number of pairs of calls. The caller chooses the
set: the calls of one group.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from xxhash import xxh3_128_digest

from weir.store.records.call_record import TokenIds
from weir.store.records.token_sequence import BLOCK, SEED, TokenSequence


class CallRole(enum.StrEnum):
    """The role of a call in the tree of its session."""

    ROOT = "root"  # continues no recorded call: a beginning, a sub-agent, or a rewritten history
    TURN = "turn"  # the first of its session to continue its parent
    FORK = "fork"  # continues a call that an earlier one continues with another prompt
    RETRY = "retry"  # the same prompt as an earlier call of its session
    DUPLICATE = "duplicate"  # a retry that also had the same answer


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CallTokens:
    """The fields of a call that determine its place in the tree. Ids have shape (T,)."""

    call_id: str
    session_id: str
    started_us: int
    finished_us: int
    sequence: TokenSequence  # prompt and output
    prompt_len: int

    @property
    def prompt_ids(self) -> TokenIds:
        """The first `prompt_len` ids, shape (prompt_len,)."""
        return self.sequence.ids(0, self.prompt_len)

    @property
    def output_ids(self) -> TokenIds:
        """The ids after the prompt, shape (T,)."""
        return self.sequence.ids(self.prompt_len, len(self.sequence))


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A call's place in the tree. `prefix_len` is the length of the parent's end, 0 for a root."""

    parent_call: str | None
    prefix_len: int
    depth: int
    root_call: str
    role: CallRole
    twin_of: str | None  # the earliest call of the session with the same prompt, for retries and duplicates
    ambiguous: bool


@dataclass(slots=True)
class _End:
    """All calls that end in the same tokens."""

    sequence: TokenSequence
    calls: list[CallTokens] = field(default_factory=list)


_Index = dict[bytes, dict[int, dict[bytes, list[_End]]]]  # hash at the last full block → length → end hash → ends


def link(calls: Sequence[CallTokens]) -> dict[str, Link]:
    """The place of every call in the trees that the calls form. The order of `calls` does not matter."""
    ordered = sorted(calls, key=lambda call: (call.started_us, call.call_id))
    index = _index_ends(ordered)
    parents = {call.call_id: _parent(call, index) for call in ordered}
    roles = _roles(ordered, parents)
    return _places(ordered, parents, roles)


def _index_ends(calls: Sequence[CallTokens]) -> _Index:
    index: _Index = {}
    for call in calls:
        sequence = call.sequence
        if len(sequence) == 0:
            continue
        same_length = index.setdefault(sequence.hashes[-1], {}).setdefault(len(sequence), {})
        same_hash = same_length.setdefault(sequence.end_hash, [])
        end = next((end for end in same_hash if end.sequence.data == sequence.data), None)
        if end is None:
            end = _End(sequence)
            same_hash.append(end)
        end.calls.append(call)
    return index


@dataclass(frozen=True, slots=True)
class _Parent:
    call: CallTokens
    length: int
    ambiguous: bool


def _parent(call: CallTokens, index: _Index) -> _Parent | None:
    end = _longest_end(call.sequence, call.prompt_len, index)
    if end is None:
        return None
    own = [other for other in end.calls if other.session_id == call.session_id]
    choice = own or end.calls
    before = [other for other in choice if other.finished_us <= call.started_us]
    if before:
        best = max(before, key=lambda other: (other.finished_us, other.call_id))
    else:  # clocks differ: the one that finished next
        best = min(choice, key=lambda other: (other.finished_us, other.call_id))
    return _Parent(best, len(end.sequence), len(choice) > 1)


def _longest_end(sequence: TokenSequence, prompt_len: int, index: _Index) -> _End | None:
    """The longest end that is a proper prefix of the prompt."""
    for full in range(prompt_len // BLOCK, -1, -1):
        by_length = index.get(sequence.hashes[full], {})
        for length in sorted((length for length in by_length if length < prompt_len), reverse=True):
            for end in by_length[length].get(sequence.hash_of(length), ()):
                if sequence.begins_with(end.sequence):
                    return end
    return None


def _roles(ordered: Sequence[CallTokens], parents: dict[str, _Parent | None]) -> dict[str, tuple[CallRole, str | None]]:
    """Role and twin of every call; `ordered` is by time, so the first of its kind is the original."""
    first_prompt: dict[tuple[str, bytes], str] = {}
    answers: dict[tuple[str, bytes], set[bytes]] = {}
    continued: set[tuple[str, str]] = set()
    roles: dict[str, tuple[CallRole, str | None]] = {}
    for call in ordered:
        parent = parents[call.call_id]
        key = (call.session_id, call.sequence.hash_of(call.prompt_len))
        output = xxh3_128_digest(call.sequence.data[4 * call.prompt_len :], SEED)
        twin = first_prompt.setdefault(key, call.call_id) if call.prompt_len else call.call_id
        given = answers.setdefault(key, set())
        if twin != call.call_id:
            roles[call.call_id] = (CallRole.DUPLICATE if output in given else CallRole.RETRY, twin)
        elif parent is None:
            roles[call.call_id] = (CallRole.ROOT, None)
        else:
            edge = (call.session_id, parent.call.call_id)
            roles[call.call_id] = (CallRole.FORK if edge in continued else CallRole.TURN, None)
            continued.add(edge)
        given.add(output)
    return roles


def _places(
    ordered: Sequence[CallTokens],
    parents: dict[str, _Parent | None],
    roles: dict[str, tuple[CallRole, str | None]],
) -> dict[str, Link]:
    places: dict[str, Link] = {}
    # A parent's prompt is shorter than its child's, so this order meets parents first.
    for call in sorted(ordered, key=lambda call: call.prompt_len):
        parent = parents[call.call_id]
        above = None if parent is None else places[parent.call.call_id]
        role, twin = roles[call.call_id]
        places[call.call_id] = Link(
            parent_call=None if parent is None else parent.call.call_id,
            prefix_len=0 if parent is None else parent.length,
            depth=0 if above is None else above.depth + 1,
            root_call=call.call_id if above is None else above.root_call,
            role=role,
            twin_of=twin,
            ambiguous=parent is not None and parent.ambiguous,
        )
    return places
