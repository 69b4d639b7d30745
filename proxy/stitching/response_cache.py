"""What earlier responses said, for requests that go on from one by its id.

Invariant: a response keeps its own input and its answer only, and names the one before it: a conversation is kept once,
however many turns it has. Instructions are not inherited. Memory is bounded in bytes; what was used longest ago is
forgotten first, and a conversation's beginning not before its end. Not here: wire forms.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from dataclasses import dataclass

import msgspec

from weir.proxy.conversation.call_request import Answer, CallRequest, Message
from weir.proxy.errors import BadRequest

_ENTRY_BYTES = 512  # what one response costs besides its messages: objects and a dictionary slot

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


@dataclass(frozen=True, slots=True)
class _Turn:
    """The messages of one response, packed, and the call that they go on from."""

    previous: str | None
    packed: bytes


class ResponseMemory:
    """The responses of late, by their calls."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._num_bytes = 0
        self._turns: OrderedDict[str, _Turn] = OrderedDict()

    def __len__(self) -> int:
        return len(self._turns)

    def remember(self, call_id: str, request: CallRequest, answer: Answer) -> None:
        """Keep the response of a finished call, if the agent did not ask otherwise."""
        thread = request.thread
        if thread is None or not thread.kept:
            return
        own = request.messages[thread.num_instructions + thread.num_inherited :]
        turn = _Turn(thread.previous, _encode([*own, answer.message()]))
        self._turns[call_id] = turn
        self._num_bytes += len(turn.packed) + _ENTRY_BYTES
        while self._num_bytes > self._limit_bytes and len(self._turns) > 1:
            _, forgotten = self._turns.popitem(last=False)
            self._num_bytes -= len(forgotten.packed) + _ENTRY_BYTES

    def missing(self, call_id: str) -> str | None:
        """The latest call of a conversation that is not remembered; None where all are."""
        at: str | None = call_id
        while at is not None and (turn := self._turns.get(at)) is not None:
            at = turn.previous
        return at

    def history(self, call_id: str) -> list[Message] | None:
        """The conversation up to and with a call's answer, without instructions; None where a part is not known."""
        turns: list[_Turn] = []
        at: str | None = call_id
        while at is not None:
            turn = self._turns.get(at)
            if turn is None:
                return None
            self._turns.move_to_end(at)
            turns.append(turn)
            at = turn.previous
        return [message for turn in reversed(turns) for message in _decode(turn.packed)]


def continued(request: CallRequest, history: list[Message] | None) -> CallRequest:
    """The request with its `history` before its own input. Raises `BadRequest` where that is not known."""
    thread = request.thread
    assert thread is not None and thread.previous is not None
    if history is None:
        raise BadRequest(
            f"Previous response with id {request.echo.get('previous_response_id')!r:.200} not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    instructions, own = request.messages[: thread.num_instructions], request.messages[thread.num_instructions :]
    return dataclasses.replace(
        request,
        messages=[*instructions, *history, *own],
        thread=dataclasses.replace(thread, num_inherited=len(history)),
    )
