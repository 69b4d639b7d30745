"""The token ids of a prompt, in forms to which a turn can be appended without converting earlier turns again.

Invariant: `packed` and `json` hold the same ids. Only the last turn exists as a list, which is all that renderers look
at: a hundred turns of Python ints would cost more than everything else in a call.
"""

from __future__ import annotations

import msgspec

from weir.store.records.call_record import pack_ids, unpack_ids

_encode = msgspec.json.Encoder().encode


class PromptIds(msgspec.Struct, frozen=True, kw_only=True):
    """The ids of one prompt."""

    packed: bytes  # int32 LE, for the record
    json: bytes  # "1,2,3", for the engine
    tail: list[int]  # from where the last turn starts

    def __len__(self) -> int:
        return len(self.packed) // 4

    @property
    def tail_start(self) -> int:
        """Where the last turn starts."""
        return len(self) - len(self.tail)

    @classmethod
    def of(cls, ids: list[int]) -> PromptIds:
        """A prompt that continues no other."""
        return cls(packed=pack_ids(ids), json=ids_json(ids), tail=ids)

    def and_turn(self, ids: list[int]) -> PromptIds:
        """These ids, followed by a further turn."""
        return PromptIds(packed=self.packed + pack_ids(ids), json=joined(self.json, ids_json(ids)), tail=ids)

    def and_forced(self, ids: list[int]) -> PromptIds:
        """These ids, followed by more ids of the same turn."""
        whole = self.and_turn(ids)
        return PromptIds(packed=whole.packed, json=whole.json, tail=self.tail + ids)

    @classmethod
    def unpacked(cls, packed: bytes) -> PromptIds:
        """A prompt from packed ids, as one turn."""
        return cls.of(unpack_ids(packed).tolist())


def ids_json(ids: list[int]) -> bytes:
    """Ids as the inside of a JSON list, without the brackets."""
    return _encode(ids)[1:-1]


def joined(first: bytes, second: bytes) -> bytes:
    """The insides of two JSON lists as that of one."""
    return first + b"," + second if first and second else first or second
