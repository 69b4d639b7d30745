"""The two things that a relayed stream may have to be told by us: that it waits at the gate, and that it broke.

Both in the form that the clients of its dialect take. Pure. Not here: errors of the upstream, which pass as they are.
"""

from __future__ import annotations

import msgspec

from weir.proxy.errors import CallError

_encode = msgspec.json.Encoder().encode


def keepalive_event(dialect: str) -> bytes:
    """What a waiting client may be sent at any time, and ignores."""
    return b'event: ping\ndata: {"type": "ping"}\n\n' if dialect == "messages" else b": waiting\n\n"


def error_event(dialect: str, error: CallError) -> bytes:
    """The last event of a stream that could not be completed; SDKs raise it."""
    told = {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}
    match dialect:
        case "messages":
            named = {"type": "error", "error": {"type": error.kind, "message": error.message}}
            return b"event: error\ndata: " + _encode(named) + b"\n\n"
        case "responses":
            return b"event: error\ndata: " + _encode(told | {"type": "error", "sequence_number": 0}) + b"\n\n"
        case _:
            return b"data: " + _encode({"error": told}) + b"\n\n"
