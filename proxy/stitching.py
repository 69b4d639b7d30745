"""Which recorded call a request continues, and the prompt ids that follow from it.

A history is never tokenised again when it can be avoided: the prompt is the earlier call's exact prompt and output
ids plus the rendering of the new messages. Invariants: a `bridged` prompt starts with those ids byte for byte; any
other prompt says why not. Memory is bounded in bytes; the calls used longest ago are forgotten, and what continues
them is a new root. Not here: parenthood, which readers compute from the ids alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weir.proxy.canonical import Digest, chain, extend
from weir.proxy.dialect import Answer, CallRequest
from weir.proxy.rendering import Rendering
from weir.store.records import Stitch, pack_ids, unpack_ids

_ENTRY_BYTES = 1024  # what one remembered call costs besides its ids: objects, digests and dictionary slots
_SEEN_LIMIT = 65_536  # histories that are remembered by digest only
_SEEN_CALLS = 64  # calls remembered for each of them


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCall:
    """A recorded call that later ones may continue. Ids are kept packed: a Python int costs eight times more."""

    call_id: str
    session_id: str
    group_id: str
    digest: Digest  # of its messages and its answer
    prompt: bytes
    output: bytes

    @property
    def num_bytes(self) -> int:
        """What it is counted as in memory."""
        return len(self.prompt) + len(self.output) + _ENTRY_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The ids that a call is sent with, and where they come from."""

    ids: list[int]
    digests: list[Digest]  # of every prefix of the request's messages
    stitch: Stitch
    known: KnownCall | None = None  # the call that was bridged from or compared with
    continues: bool = False  # whether it goes on where `known` ended: by its messages, or by the very ids
    differs_at: int | None = None


class StitchMemory:
    """The calls of late, found by the digest of the history that they end."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._num_bytes = 0
        self._calls: OrderedDict[str, KnownCall] = OrderedDict()
        self._by_digest: dict[Digest, list[KnownCall]] = {}
        self._seen: OrderedDict[Digest, list[str]] = OrderedDict()  # history without an answer → calls that had it

    def __len__(self) -> int:
        return len(self._calls)

    def remember(self, call: KnownCall, digests: Sequence[Digest]) -> None:
        """Keep a finished call; `digests` are those of its request's messages."""
        self._calls[call.call_id] = call
        self._by_digest.setdefault(call.digest, []).append(call)
        self._num_bytes += call.num_bytes
        for digest in digests[1:]:
            had_it = self._seen.setdefault(digest, [])
            had_it.append(call.call_id)
            del had_it[:-_SEEN_CALLS]
            self._seen.move_to_end(digest)
        while self._num_bytes > self._limit_bytes and len(self._calls) > 1:
            self._forget(next(iter(self._calls)))
        while len(self._seen) > _SEEN_LIMIT:
            self._seen.popitem(last=False)

    def find(self, digests: Sequence[Digest], session_id: str | None) -> tuple[KnownCall, int] | None:
        """The call whose answer ends the longest prefix of the messages, and the length of that prefix.

        Of several, one of the same session wins, then the latest.
        """
        for num_messages in range(len(digests) - 1, 0, -1):
            candidates = self._by_digest.get(digests[num_messages])
            if candidates:
                own = [call for call in candidates if call.session_id == session_id]
                call = (own or candidates)[-1]
                self._calls.move_to_end(call.call_id)
                return call, num_messages
        return None

    def find_partial(self, digests: Sequence[Digest], ids: list[int], session_id: str | None) -> KnownCall | None:
        """A remembered call whose request shares the longest prefix of the messages.

        Sessions of one task share their first messages, so there may be many: the one whose ids `ids` go on from wins,
        then one of the same session, then the latest.
        """
        for digest in reversed(digests[1:]):
            calls = [self._calls[call_id] for call_id in self._seen.get(digest, ()) if call_id in self._calls]
            if calls:
                exact = [call for call in calls if first_difference(ids, call.prompt + call.output) is None]
                own = [call for call in calls if call.session_id == session_id]
                return (exact or own or calls)[-1]
        return None

    def _forget(self, call_id: str) -> None:
        call = self._calls.pop(call_id)
        self._num_bytes -= call.num_bytes
        others = [other for other in self._by_digest[call.digest] if other is not call]
        if others:
            self._by_digest[call.digest] = others
        else:
            del self._by_digest[call.digest]


def plan_prompt(rendering: Rendering, memory: StitchMemory, request: CallRequest, session_id: str | None) -> Prompt:
    """The prompt of a request: bridged from the call that it continues, else rendered in full, and why."""
    digests = chain(request.tools, request.messages)
    found = memory.find(digests, session_id)
    if found is None:
        return _rendered_afresh(rendering, memory, request, digests, session_id)
    known, num_messages = found
    new_messages = request.messages[num_messages:]
    prompt_ids, output_ids = unpack_ids(known.prompt).tolist(), unpack_ids(known.output).tolist()
    answered = any(message["role"] == "assistant" for message in new_messages)
    if new_messages and not answered:
        bridged = rendering.bridge(prompt_ids, output_ids, new_messages, request.tools)
        if bridged is not None:
            return Prompt(ids=bridged, digests=digests, stitch=Stitch.BRIDGED, known=known, continues=True)
    reason = (
        Stitch.HISTORY_REWRITTEN if answered else Stitch.TEMPLATE_STRIP if rendering.can_bridge else Stitch.RETOKENISED
    )
    return _compared(rendering.render(request.messages, request.tools), digests, known, reason, continues=True)


def known_call(
    call_id: str, session_id: str, group_id: str, prompt: Prompt, output_ids: list[int], answer: Answer
) -> KnownCall:
    """What is remembered of a finished call."""
    return KnownCall(
        call_id=call_id,
        session_id=session_id,
        group_id=group_id,
        digest=extend(prompt.digests[-1], answer.message()),
        prompt=pack_ids(prompt.ids),
        output=pack_ids(output_ids),
    )


def _rendered_afresh(
    rendering: Rendering, memory: StitchMemory, request: CallRequest, digests: list[Digest], session_id: str | None
) -> Prompt:
    ids = rendering.render(request.messages, request.tools)
    if any(message["role"] == "assistant" for message in request.messages):
        known = memory.find_partial(digests, ids, session_id)
        if known is not None:
            return _compared(ids, digests, known, Stitch.HISTORY_REWRITTEN, continues=False)
    return Prompt(ids=ids, digests=digests, stitch=Stitch.NEW_ROOT)


def _compared(ids: list[int], digests: list[Digest], known: KnownCall, reason: Stitch, *, continues: bool) -> Prompt:
    """A full rendering beside the ids of the call that it should have continued."""
    differs_at = first_difference(ids, known.prompt + known.output)
    if differs_at is None:
        return Prompt(ids=ids, digests=digests, stitch=Stitch.BRIDGED, known=known, continues=True)
    return Prompt(ids=ids, digests=digests, stitch=reason, known=known, differs_at=differs_at, continues=continues)


def first_difference(ids: list[int], packed: bytes) -> int | None:
    """The first position where `ids` does not go on as the packed ids do; None if it starts with all of them."""
    earlier = unpack_ids(packed)
    length = min(len(ids), len(earlier))
    differs = np.flatnonzero(np.asarray(ids[:length], dtype=np.int32) != earlier[:length])
    if len(differs):
        return int(differs[0])
    return None if length == len(earlier) else length
