"""Bodies that a client compressed, unpacked within the limit on bodies.

Invariant: no body makes more than the limit, however small it is packed, or takes time that grows with its square.
"""

from __future__ import annotations

import asyncio
import zlib

from weir.proxy.errors import BadRequest, RequestTooLarge, UnknownEncoding

_GZIP = 16 + zlib.MAX_WBITS
_MEMBERS = 64  # of one body: each copies what follows it, and empty ones count towards no other limit
_AT_ONCE = 2**16  # bytes of a packed body that are unpacked on the event loop's thread


async def decoded(body: bytes, encoding: str, limit_bytes: int) -> bytes:
    """The body as the client meant it. Raises `RequestTooLarge`, `UnknownEncoding`, or `BadRequest` for damage."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return body
    if name not in ("gzip", "x-gzip"):
        raise UnknownEncoding(f"the body has content-encoding {encoding!r:.60}; send it as it is, or as gzip")
    if len(body) < _AT_ONCE:
        return _unpacked(body, limit_bytes)
    return await asyncio.to_thread(_unpacked, body, limit_bytes)


def _unpacked(body: bytes, limit_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        for _ in range(_MEMBERS):  # a gzip file may have several
            member = zlib.decompressobj(wbits=_GZIP)
            parts.append(member.decompress(body, limit_bytes - size + 1))
            size += len(parts[-1])
            if size > limit_bytes:
                raise RequestTooLarge(f"the body is larger than {limit_bytes} bytes once it is unpacked; shorten it")
            if not member.eof:
                raise BadRequest("the body is cut off: its gzip data has no end", code="invalid_encoding")
            body = member.unused_data
            if not body:
                return b"".join(parts)
    except zlib.error as error:
        why = f"the body is not the gzip that its content-encoding says: {error}"
        raise BadRequest(why, code="invalid_encoding") from error
    raise BadRequest(f"the body has more than {_MEMBERS} gzip members; pack it as one", code="invalid_encoding")
