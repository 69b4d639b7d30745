"""The weights of one update as they arrive, next to those that are served.

Invariants: what arrives is copied out of the sender's memory and checked against the served model before the sender has
its answer; nothing that is served changes here. They are copied once, to where the decoder will compute with them, and
their checksums are those of the copies, computed while these are in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

import torch

from weir.engine.decoder import Blank, Decoder, Prepared
from weir.engine.errors import WeightsRefused
from weir.engine.transfer.adapter import Adapter
from weir.engine.transfer.block_delta import BLOCK_VALUES, DeltaDamaged, apply_block, as_bits
from weir.engine.transfer.bucket import BadBucket, FlattenedTensorMetadata, split
from weir.engine.weights import check_finite, checksum, fitting, missing_names, tied_names, whole


class Staging:
    """One update between its begin and its end."""

    def __init__(self, decoder: Decoder) -> None:
        self.version: str | None = None
        self.flush = False
        self._decoder = decoder
        self._wanted = dict(decoder.model.state_dict(keep_vars=True))
        self._tied = tied_names(self._wanted)
        self._there: dict[str, torch.Tensor] = {}
        self._sums: dict[str, str] = {}
        self._mapped: list[torch.Tensor] = []  # buckets that may come again, with other tensors
        self._blank: Blank | None = None  # filled as tensors arrive
        self._prepared: Prepared | None = None
        self._adapter: Adapter | None = None  # whose parts arrive

    def add(self, flat: torch.Tensor, entries: Sequence[FlattenedTensorMetadata]) -> None:
        """Take the tensors of a bucket, (bytes,) uint8, which may be reused afterwards. Raises WeightsRefused."""
        if self._prepared is not None:
            raise WeightsRefused("all tensors of the update are there already; begin another update")
        try:
            self._mapped = [flat, *self._mapped[:1]]
            for name, tensor in split(flat, entries):
                self._take(name, tensor)
        except BadBucket as error:
            raise WeightsRefused(str(error)) from error
        self._prepare_once_whole()

    def change(self, entries: Sequence[FlattenedTensorMetadata], blocks: BinaryIO) -> None:
        """Take tensors as the differences to the served ones, in blocks (block_delta.py). Raises WeightsRefused."""
        if self._prepared is not None:
            raise WeightsRefused("all tensors of the update are there already; begin another update")
        try:
            for entry in entries:
                self._take(entry.name, self._changed(entry, blocks))
        except DeltaDamaged as error:
            raise WeightsRefused(f"the difference cannot be read: {error}") from error
        if blocks.read(1):
            raise WeightsRefused("the difference has more blocks than its tensors have values")
        self._prepare_once_whole()

    def adapt(self, adapter: Adapter, part: bytes, *, last: bool) -> None:
        """Take a part of an adapter; after the last one, its base with all of it. Raises WeightsRefused."""
        if self._prepared is not None:
            raise WeightsRefused("all tensors of the update are there already; begin another update")
        self._adapter = self._adapter or adapter
        self._adapter.add(part)
        if last:
            for name, tensor in self._adapter.merged():
                self._take(name, tensor)
            self._prepare_once_whole()

    def _changed(self, entry: FlattenedTensorMetadata, blocks: BinaryIO) -> torch.Tensor:
        """A copy of a served tensor in the type that the difference is of, and the difference applied to it."""
        held = self._wanted.get(entry.name)
        if held is None or held.shape != entry.shape:
            raise WeightsRefused(f"{entry.name} of shape {list(entry.shape)} is no tensor of the served model")
        if torch.promote_types(held.dtype, entry.dtype) != held.dtype:
            raise WeightsRefused(f"{entry.name} is served in {held.dtype}, which has not the bits of {entry.dtype}")
        tensor = torch.empty(entry.shape, dtype=entry.dtype)
        tensor.copy_(held.detach())
        values = as_bits(tensor.flatten().view(torch.uint8).numpy(), entry.dtype.itemsize)
        for start in range(0, len(values), BLOCK_VALUES):
            apply_block(values[start : start + BLOCK_VALUES], blocks)
        return tensor

    def _take(self, name: str, tensor: torch.Tensor) -> None:
        """Copy a tensor to where the decoder will compute with it, in the type that it computes in."""
        held = fitting(name, tensor, self._wanted)
        if self._blank is None:
            self._blank = self._decoder.blank()
        is_second = name in self._tied  # only compared with the first of its values
        place = torch.empty(held.shape, dtype=held.dtype) if is_second else self._blank.places[held]
        with torch.no_grad():
            place.copy_(tensor)
            check_finite(name, place)
            if not is_second:
                self._sums[name] = checksum(place)
        self._there[name] = place

    def _prepare_once_whole(self) -> None:
        if self._blank is not None and not missing_names(self._there.keys(), self._wanted):
            whole(self._there, self._wanted, "the update")
            self._prepared = self._decoder.complete(self._blank)
            self._there, self._blank, self._mapped = {}, None, []

    def prepared(self) -> Prepared:
        """The whole update, laid out. Raises WeightsRefused where tensors lack."""
        if self._prepared is None:
            whole(self._there, self._wanted, "the update")
        assert self._prepared is not None
        return self._prepared

    def checksums(self) -> dict[str, str]:
        """Of the tensors that `prepared` holds, as those of served ones. Raises WeightsRefused where tensors lack."""
        self.prepared()
        return self._sums
