"""The cache of recent calls that later requests may continue.

Invariant: its memory is bounded in bytes; the least recently used calls are evicted first. A call is kept once, however
often it is added, and so are the ids that calls of one conversation share: they are counted until the last of these
calls goes. An OrderedDict rather than a cache of cachetools: three indices and a lock belong to it, and it is used
several times in every call.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import msgspec
import numpy as np

from weir.proxy.conversation.digests import Digest
from weir.proxy.conversation.prompt_ids import IdRun, PromptIds
from weir.store.log.tail import CallSketch
from weir.store.records.call_record import CallRecord, TokenIds, unpack_ids

_ENTRY_BYTES = 1024  # memory of one cached call besides its ids: objects, digests and dictionary slots
_SEEN_LIMIT = 65_536  # histories that are kept by digest only
_SEEN_CALLS = 64  # calls remembered for each of them
_SESSION_CALLS = 16  # the latest calls of a session that are found by its name


class KnownCall(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded call that later ones may continue. Its ids are packed: Python ints would cost eight times more."""

    call_id: str
    session_id: str
    group_id: str
    digest: Digest  # of its messages and its answer
    num_messages: int  # of its request
    asked: IdRun  # its prompt; a run for each turn, but for what was read from the store
    said: IdRun  # its output, behind the prompt
    routed: bool = False  # whether the experts of its tokens are recorded

    @property
    def prompt(self) -> bytes:
        """The ids of its prompt."""
        return self.asked.whole

    @property
    def output(self) -> bytes:
        """The ids of its answer."""
        return self.said.packed

    @property
    def exact(self) -> bytes:
        """Prompt and output, with which a prompt that continues this call begins."""
        return self.said.whole

    @property
    def ids(self) -> PromptIds:
        """Prompt and output, the beginning of a prompt that continues this call."""
        known = self.said.json is not None
        return PromptIds(run=self.said, tail=[]) if known else PromptIds.unpacked(self.exact)

    @property
    def last_turn(self) -> list[int]:
        """The ids of the prompt's last turn; all of it where the call was read from the store."""
        ids: list[int] = unpack_ids(self.asked.packed).tolist()
        return ids

    @property
    def num_bytes(self) -> int:
        """Its memory where it shares no ids with other calls."""
        return _ENTRY_BYTES + sum(run.num_bytes for run in self.said.runs())


def known_call(call: CallRecord | CallSketch, ids: PromptIds | None = None) -> KnownCall:
    """The cache entry of a recorded call; `ids` is its prompt, where this process made it.

    The forced beginning of an answer counts as output.
    """
    num_bytes = len(call.prompt_ids) - 4 * call.forced
    output = call.prompt_ids[num_bytes:] + call.output_ids if call.forced else call.output_ids
    asked = ids.run if ids is not None else IdRun(None, call.prompt_ids[:num_bytes], None)
    return KnownCall(
        call_id=call.call_id,
        session_id=call.session_id,
        group_id=call.group_id,
        digest=call.digest,
        num_messages=call.num_messages,
        asked=asked,
        routed=call.routed_from is not None,
        said=IdRun.unpacked(output, asked) if ids is not None else IdRun(asked, output, None),
    )


class CallCache:
    """Calls, found by the digest of the history that they complete, of what they were asked, or by their session."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._lock = threading.RLock()  # long prompts are stitched in threads
        self.num_bytes = 0  # of all calls, and of the ids that they hold
        self._calls: OrderedDict[str, KnownCall] = OrderedDict()
        self._by_digest: dict[Digest, list[KnownCall]] = {}
        self._by_session: dict[str, list[str]] = {}
        self._seen: OrderedDict[Digest, list[str]] = OrderedDict()  # history without an answer → calls that had it

    def __len__(self) -> int:
        return len(self._calls)

    def remember(self, call: KnownCall, digests: Sequence[Digest] = ()) -> None:
        """Add a finished call; `digests` are those of its request's messages, where they are known."""
        with self._lock:
            if call.call_id in self._calls:
                return
            self._calls[call.call_id] = call
            self._by_digest.setdefault(call.digest, []).append(call)
            of_session = self._by_session.setdefault(call.session_id, [])
            of_session.append(call.call_id)
            del of_session[:-_SESSION_CALLS]
            self.num_bytes += _ENTRY_BYTES + _hold(call.said)
            for digest in digests[1:]:
                had_it = self._seen.setdefault(digest, [])
                had_it.append(call.call_id)
                del had_it[:-_SEEN_CALLS]
                self._seen.move_to_end(digest)
            while self.num_bytes > self.limit_bytes and len(self._calls) > 1:
                self._evict(next(iter(self._calls)))
            while len(self._seen) > _SEEN_LIMIT:
                self._seen.popitem(last=False)

    def find(self, digests: Sequence[Digest], session_id: str | None) -> tuple[KnownCall, int] | None:
        """The call whose answer ends the longest prefix of the messages, and the length of that prefix.

        Of several, one of the same session wins, then the latest.
        """
        with self._lock:
            for num_messages in range(len(digests) - 1, 0, -1):
                candidates = self._by_digest.get(digests[num_messages])
                if candidates:
                    own = [call for call in candidates if call.session_id == session_id]
                    call = (own or candidates)[-1]
                    self._calls.move_to_end(call.call_id)
                    return call, num_messages
            return None

    def find_asked(self, digests: Sequence[Digest], ids: list[int], session_id: str | None) -> KnownCall | None:
        """The cached call that was asked the longest of these histories, whatever it answered.

        With a session only its own calls count. Sessions of one task ask the same, so there may be many: one whose ids
        are a prefix of `ids` wins, then the latest.
        """
        with self._lock:
            for num_messages in range(len(digests) - 1, 0, -1):
                named = self._seen.get(digests[num_messages], ())
                known = [self._calls[call_id] for call_id in named if call_id in self._calls]
                calls = [
                    call
                    for call in known
                    if call.num_messages == num_messages and session_id in (None, call.session_id)
                ]
                if calls:
                    exact = [call for call in calls if first_difference(ids, call.exact) is None]
                    return (exact or calls)[-1]
            return None

    def of_session(self, session_id: str) -> list[KnownCall]:
        """The latest calls of a session, oldest first."""
        with self._lock:
            return [self._calls[call_id] for call_id in self._by_session.get(session_id, ()) if call_id in self._calls]

    def _evict(self, call_id: str) -> None:
        call = self._calls.pop(call_id)
        self.num_bytes -= _ENTRY_BYTES + _let_go(call.said)
        _drop(self._by_digest, call.digest, call)
        _drop(self._by_session, call.session_id, call_id)


def _hold(last: IdRun) -> int:
    """Count a call as a holder of its ids; returns the bytes that nothing held before."""
    num_bytes = 0
    run: IdRun | None = last
    while run is not None:
        run.holders += 1
        if run.holders > 1:
            break
        num_bytes += run.num_bytes
        run = run.before
    return num_bytes


def _let_go(last: IdRun) -> int:
    """Count a call as a holder of its ids no longer; returns the bytes that nothing holds now."""
    num_bytes = 0
    run: IdRun | None = last
    while run is not None:
        run.holders -= 1
        if run.holders:
            break
        num_bytes += run.num_bytes
        run = run.before
    return num_bytes


def _drop(index: dict, key: object, item: object) -> None:  # type: ignore[type-arg]
    others = [other for other in index.get(key, ()) if other is not item]
    if others:
        index[key] = others
    else:
        index.pop(key, None)


def first_difference(ids: list[int] | TokenIds, packed: bytes) -> int | None:
    """The first index at which `ids` differs from the packed ids; None if it starts with all of them."""
    earlier = unpack_ids(packed)
    length = min(len(ids), len(earlier))
    differs = np.flatnonzero(np.asarray(ids[:length], dtype=np.int32) != earlier[:length])
    if len(differs):
        return int(differs[0])
    return None if length == len(earlier) else length
