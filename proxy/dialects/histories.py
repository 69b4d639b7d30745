"""The conversation in a body, a JSON array of items, of which those of a known beginning are not read again.

An agent sends its whole history with each turn. The dialects differ in their items, in whether adjacent items of an
answer become one message, and in whether an item may look otherwise in the next request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from weir.proxy.conversation.call_request import Message
from weir.proxy.conversation.digests import Digest, extend
from weir.proxy.conversation.parsed_history import Beginnings, History, num_characters
from weir.proxy.dialects.body import required, value_of

_WHITE = b" \t\r\n"
_decode_parts = msgspec.json.Decoder(list[msgspec.Raw]).decode

Read = Callable[[list[Any], int, list[str]], list[Message]]
"""Reads items, the first of which has this number in errors; adds the paths of images. Raises `BadRequest`."""


def array_of(name: str, raw: bytes | None) -> bytes:
    """The raw JSON of a field, which must be an array. Raises `BadRequest`."""
    raw = b"null" if raw is None else raw
    if raw[:1] != b"[":
        required({name: value_of(raw)}, name, list)  # raises: it is absent, or of another type
    return raw


def history_in(
    raw: bytes,
    front: list[Message],
    chain: list[Digest],
    beginnings: Beginnings,
    images: list[str],
    read: Read,
    passing: bytes | None = None,
    joins_answers: bool = False,
) -> tuple[Sequence[Message], list[Digest]]:
    """The messages of a JSON array of items behind those in `front`, and the digests of all prefixes.

    Args:
        raw: The array.
        front: Messages that the body has elsewhere.
        chain: Digests of the prefixes of `front`.
        beginnings: What is known; this conversation is added.
        images: Gets the paths of images.
        read: Reads the items of the dialect.
        passing: Bytes of a mark that the same item may lack in the next request: from the first such item on, nothing
            is remembered.
        joins_answers: Whether items may become one message with the answer before them, which then ends no beginning.

    Raises:
        BadRequest: An item is not one of the dialect.
    """
    begun = beginnings.find(raw, chain[-1])
    start, rest = 0, raw
    if begun is not None:
        start, rest = begun.num_items, b"[" + raw[begun.num_bytes :].lstrip(_WHITE)[1:]
        images += begun.images
    items = value_of(rest)
    parts = _decode_parts(rest) if passing and passing in rest else []
    num_settled = next((i for i, part in enumerate(parts) if passing and passing in bytes(part)), len(items))
    new = read(items[:num_settled], start, images)
    settled_images = tuple(images)
    digests = list(begun.digests) if begun else chain[-1:]
    for message in new:
        digests.append(extend(digests[-1], message))
    old_characters = begun.num_characters if begun else 0
    if new and not (joins_answers and new[-1]["role"] == "assistant"):
        beginnings.remember(
            _without(parts[num_settled:], raw),
            list(digests),
            num_items=start + num_settled,
            num_characters=old_characters + num_characters(new),
            images=settled_images,
        )
    if num_settled < len(items):
        passing_messages = read(items[num_settled:], start + num_settled, images)
        for message in passing_messages:
            digests.append(extend(digests[-1], message))
        new += passing_messages
    digests = [*chain[:-1], *digests]
    if begun is None:
        return [*front, *new], digests
    return History(front, begun, new, lambda: read(value_of(raw[: begun.num_bytes] + b"]"), 0, [])), digests


def _without(last: Sequence[msgspec.Raw], raw: bytes) -> bytes:
    """A JSON array from its opening bracket to the end of the item before its `last` ones."""
    inside = raw[:-1].rstrip(_WHITE)
    for part in reversed(last):
        inside = inside[: -len(bytes(part))].rstrip(_WHITE).removesuffix(b",").rstrip(_WHITE)
    return inside
