"""Frames between processes of the evaluation: a length, then msgpack of one msgspec struct, over a Unix stream socket.

File descriptors travel with the length. Invariant: a reader allocates at most `MAX_FRAME_BYTES`, returns within its
deadline and runs nothing that the sender chose (no pickle), so that a judge can safely read from a worker. `send` and
`receive` block; `write_frame` and `read_frame` are for an event loop.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import struct
import time
from typing import Any, TypeVar

import msgspec

MAX_FRAME_BYTES = 32 << 20
_MAX_FDS = 5
_LENGTH = struct.Struct("<I")

Message = TypeVar("Message")
_encode = msgspec.msgpack.Encoder().encode


class ChannelClosed(Exception):
    """The other end of the socket is closed."""


class FrameError(Exception):
    """The other side sent something that is not a message of the expected type."""


def send(sock: socket.socket, message: msgspec.Struct, fds: tuple[int, ...] = ()) -> None:
    """Write one message. Raises `ChannelClosed`."""
    payload = _encode(message)
    try:
        socket.send_fds(sock, [_LENGTH.pack(len(payload))], list(fds))
        sock.sendall(payload)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise ChannelClosed from error


def receive(
    sock: socket.socket, kind: type[Message], timeout_s: float | None = None, max_bytes: int = MAX_FRAME_BYTES
) -> tuple[Message, list[int]]:
    """Read one message and its descriptors. Raises `ChannelClosed`, `FrameError`, `TimeoutError`."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    fds: list[int] = []
    header = _read(sock, _LENGTH.size, deadline, fds)
    try:
        (length,) = _LENGTH.unpack(header)
        if length > max_bytes:
            raise FrameError(f"a message of {length} bytes, at most {max_bytes} are accepted")
        return decode(_read(sock, length, deadline, None), kind), fds
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise


def decode(payload: bytes, kind: type[Message]) -> Message:
    """Decode one message. Raises `FrameError` if it is malformed or of another type."""
    try:
        known: Any = kind
        message: Message = _decoder(known).decode(payload)
        return message
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"not a message of the expected type: {error}") from error


def learn(*kinds: Any) -> None:
    """Build the decoders of these message types now, so that children forked later need not."""
    for kind in kinds:
        _decoder(kind)


@functools.cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)


def _read(sock: socket.socket, size: int, deadline: float | None, fds: list[int] | None) -> bytes:
    received = bytearray()
    while len(received) < size:
        if deadline is not None:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            sock.settimeout(remaining)
        else:
            sock.settimeout(None)
        try:
            if fds is None:
                chunk = sock.recv(size - len(received))
            else:
                chunk, new_fds, _, _ = socket.recv_fds(sock, size - len(received), _MAX_FDS)
                fds.extend(new_fds)
        except ConnectionResetError as error:
            raise ChannelClosed from error
        if not chunk:
            raise ChannelClosed
        received += chunk
    return bytes(received)


async def write_frame(sock: socket.socket, message: msgspec.Struct, fds: tuple[int, ...] = ()) -> None:
    """`send` for a non-blocking socket in an event loop. Raises `ChannelClosed`.

    Sending the length never blocks: the buffer is empty.
    """
    payload = _encode(message)
    try:
        socket.send_fds(sock, [_LENGTH.pack(len(payload))], list(fds))
        await asyncio.get_running_loop().sock_sendall(sock, payload)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise ChannelClosed from error


async def read_frame(sock: socket.socket, kind: type[Message]) -> Message:
    """`receive` for a non-blocking socket in an event loop, without descriptors.

    Raises `FrameError`, `ChannelClosed`.
    """
    (length,) = _LENGTH.unpack(await _read_async(sock, _LENGTH.size))
    if length > MAX_FRAME_BYTES:
        raise FrameError(f"a message of {length} bytes, at most {MAX_FRAME_BYTES} are accepted")
    return decode(await _read_async(sock, length), kind)


async def _read_async(sock: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    received = bytearray()
    while len(received) < size:
        try:
            chunk = await loop.sock_recv(sock, size - len(received))
        except ConnectionResetError as error:
            raise ChannelClosed from error
        if not chunk:
            raise ChannelClosed
        received += chunk
    return bytes(received)
