"""Replies to earlier requests, by the content of the request.

Only verdicts on the candidate are cached: a fault of the server may not occur again.
"""

from __future__ import annotations

import hashlib

import msgspec
from cachetools import LRUCache

from weir.kernel_eval.protocol import EvalReply, EvalRequest


class ResultCache:
    """The replies that were used last: `max_entries` at most, of `max_bytes` in all, as encoded."""

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._max_entries = max_entries
        self._replies: LRUCache[str, EvalReply] = LRUCache(max_bytes if max_entries else 0, getsizeof=_num_bytes)

    def find(self, request: EvalRequest) -> EvalReply | None:
        """The reply to an equal request, marked as cached; None if there is none."""
        reply = self._replies.get(content_key(request))
        if reply is None:
            return None
        return msgspec.structs.replace(reply, details={**reply.details, "cached": True})

    def keep(self, request: EvalRequest, reply: EvalReply) -> None:
        """Cache a reply that is a verdict on the candidate; others are ignored."""
        if reply.raw_reward is None or _num_bytes(reply) > self._replies.maxsize:
            return
        self._replies[content_key(request)] = reply
        while len(self._replies) > self._max_entries:
            self._replies.popitem()


def _num_bytes(reply: EvalReply) -> int:
    return len(msgspec.msgpack.encode(reply))


def content_key(request: EvalRequest) -> str:
    """A hash of the fields that decide the verdict. Sources must have been decoded to text."""
    content = msgspec.structs.replace(request, use_cache=False, verbose=False, job_id=None, preferred_device=None)
    return hashlib.sha256(msgspec.msgpack.encode(content)).hexdigest()
