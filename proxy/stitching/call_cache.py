"""The cache of recent calls that later requests may continue.

Invariant: its memory is bounded in bytes; the least recently used calls are evicted first, and a call is kept once,
however often it is added. An OrderedDict rather than a cache of cachetools: three indices and a lock belong to it, and
it is used several times in every call.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import msgspec
import numpy as np

from weir.proxy.conversation.digests import Digest
from weir.proxy.conversation.prompt_ids import PromptIds, ids_json, joined
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
    prompt: bytes
    output: bytes
    json: bytes  # both, as the inside of a JSON list; empty where the call was read from the store
    last_turn_start: int  # index at which the prompt's last turn starts; 0 where it was read from the store

    @property
    def ids(self) -> PromptIds:
        """Prompt and output, the beginning of a prompt that continues this call."""
        packed = self.prompt + self.output
        return PromptIds(packed=packed, json=self.json, tail=[]) if self.json else PromptIds.unpacked(packed)

    @property
    def last_turn(self) -> list[int]:
        """The ids of the prompt's last turn."""
        ids: list[int] = unpack_ids(self.prompt)[self.last_turn_start :].tolist()
        return ids

    @property
    def num_bytes(self) -> int:
        """The memory that it is counted with."""
        return len(self.prompt) + len(self.output) + len(self.json) + _ENTRY_BYTES


def known_call(call: CallRecord | CallSketch, ids: PromptIds | None = None) -> KnownCall:
    """The cache entry of a recorded call; `ids` is its prompt, where this process made it.

    The forced beginning of an answer counts as output.
    """
    asked = len(call.prompt_ids) - 4 * call.forced
    output = call.prompt_ids[asked:] + call.output_ids if call.forced else call.output_ids
    return KnownCall(
        call_id=call.call_id,
        session_id=call.session_id,
        group_id=call.group_id,
        digest=call.digest,
        num_messages=call.num_messages,
        prompt=call.prompt_ids[:asked],
        output=output,
        json=joined(ids.json, ids_json(unpack_ids(output).tolist())) if ids else b"",
        last_turn_start=ids.tail_start if ids else 0,
    )


class CallCache:
    """Calls, found by the digest of the history that they complete, of what they were asked, or by their session."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._lock = threading.RLock()  # long prompts are stitched in threads
        self._num_bytes = 0
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
            self._num_bytes += call.num_bytes
            for digest in digests[1:]:
                had_it = self._seen.setdefault(digest, [])
                had_it.append(call.call_id)
                del had_it[:-_SEEN_CALLS]
                self._seen.move_to_end(digest)
            while self._num_bytes > self.limit_bytes and len(self._calls) > 1:
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
                    exact = [call for call in calls if first_difference(ids, call.prompt + call.output) is None]
                    return (exact or calls)[-1]
            return None

    def of_session(self, session_id: str) -> list[KnownCall]:
        """The latest calls of a session, oldest first."""
        with self._lock:
            return [self._calls[call_id] for call_id in self._by_session.get(session_id, ()) if call_id in self._calls]

    def _evict(self, call_id: str) -> None:
        call = self._calls.pop(call_id)
        self._num_bytes -= call.num_bytes
        _drop(self._by_digest, call.digest, call)
        _drop(self._by_session, call.session_id, call_id)


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
