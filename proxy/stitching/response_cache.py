"""Earlier responses, for requests that continue one by its id.

Invariant: a response keeps its own input and its answer only, and names the one before it: a conversation is kept once,
however many turns it has. Instructions are not inherited. Memory is bounded in bytes; the least recently used is
evicted first, and a conversation's beginning not before its end.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from cachetools import LRUCache

from weir.proxy.conversation.call_request import Answer, CallRequest, Message
from weir.proxy.errors import BadRequest

_ENTRY_BYTES = 512  # memory of one response besides its messages: objects and a dictionary slot

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


@dataclass(frozen=True, slots=True)
class _Turn:
    """The messages of one response, packed, the session that got it, and the call that they continue."""

    session_id: str
    previous: str | None
    packed: bytes

    @property
    def num_bytes(self) -> int:
        """The memory that it is counted with."""
        return len(self.packed) + _ENTRY_BYTES


class ResponseCache:
    """Recent responses, by their calls."""

    def __init__(self, limit_bytes: int) -> None:
        self._turns: LRUCache[str, _Turn] = LRUCache(limit_bytes, getsizeof=lambda turn: turn.num_bytes)

    def __len__(self) -> int:
        return len(self._turns)

    def remember(self, call_id: str, session_id: str, request: CallRequest, answer: Answer) -> None:
        """Keep the response of a finished call, unless the agent asked not to."""
        thread = request.thread
        if thread is None or not thread.kept:
            return
        own = request.messages[thread.num_instructions + thread.num_inherited :]
        turn = _Turn(session_id, thread.previous, _encode([*own, answer.message()]))
        if turn.num_bytes <= self._turns.maxsize:
            self._turns[call_id] = turn

    def session_of(self, call_id: str) -> str | None:
        """The session that got a response; None where it is not cached."""
        turn = self._turns.get(call_id)
        return None if turn is None else turn.session_id

    def missing(self, call_id: str) -> str | None:
        """The latest call of a conversation that is not cached; None where all are."""
        at: str | None = call_id
        while at is not None and (turn := self._turns.get(at)) is not None:
            at = turn.previous
        return at

    def history(self, call_id: str) -> list[Message] | None:
        """The conversation up to and with a call's answer, without instructions; None where a part is not cached."""
        turns: list[_Turn] = []
        at: str | None = call_id
        while at is not None:
            turn = self._turns.get(at)
            if turn is None:
                return None
            turns.append(turn)
            at = turn.previous
        return [message for turn in reversed(turns) for message in _decode(turn.packed)]


def continued(request: CallRequest, history: list[Message] | None) -> CallRequest:
    """The request with its `history` before its own input. Raises `BadRequest` where the history is None."""
    thread = request.thread
    assert thread is not None and thread.previous is not None
    if history is None:
        raise BadRequest(
            f"Previous response with id {request.echo.get('previous_response_id')!r:.200} not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    instructions, own = request.messages[: thread.num_instructions], request.messages[thread.num_instructions :]
    return msgspec.structs.replace(
        request,
        messages=[*instructions, *history, *own],
        thread=msgspec.structs.replace(thread, num_inherited=len(history)),
    )
