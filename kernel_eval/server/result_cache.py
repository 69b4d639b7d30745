"""Judgements of earlier evaluations, by the content of their requests; the least recently used one goes first.

Only what is about the candidate is kept: a fault that is ours may not happen again.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

import msgspec

from weir.kernel_eval.protocol import EvalReply, EvalRequest


class ResultCache:
    """At most `capacity` replies."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._replies: OrderedDict[str, EvalReply] = OrderedDict()

    def find(self, request: EvalRequest) -> EvalReply | None:
        """The reply to an equal request, marked as cached."""
        key = content_key(request)
        reply = self._replies.get(key)
        if reply is None:
            return None
        self._replies.move_to_end(key)
        return msgspec.structs.replace(reply, details={**reply.details, "cached": True})

    def keep(self, request: EvalRequest, reply: EvalReply) -> None:
        """Remember a reply, if it is about the candidate."""
        if self._capacity == 0 or reply.raw_reward is None:
            return
        self._replies[content_key(request)] = reply
        if len(self._replies) > self._capacity:
            self._replies.popitem(last=False)


def content_key(request: EvalRequest) -> str:
    """What two requests share that ask for the same verdict; their sources are text by now."""
    content = msgspec.structs.replace(request, use_cache=False, verbose=False, job_id=None, preferred_device=None)
    return hashlib.sha256(msgspec.msgpack.encode(content)).hexdigest()
