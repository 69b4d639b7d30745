"""The weights of one update as they arrive, next to those that are served.

Invariants: what arrives is copied out of the sender's memory and checked against the served model before the sender has
its answer; nothing that is served changes here. Once all tensors are there, they are laid out for the decoder.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from weir.engine.decoder import Decoder, Prepared
from weir.engine.errors import WeightsRefused
from weir.engine.transfer.bucket import BadBucket, FlattenedTensorMetadata, split
from weir.engine.weights import checked, checksums, missing_names, whole


class Staging:
    """One update between its begin and its end."""

    def __init__(self, decoder: Decoder) -> None:
        self.version: str | None = None
        self.flush = False
        self._decoder = decoder
        self._wanted = dict(decoder.model.state_dict(keep_vars=True))
        self._there: dict[str, torch.Tensor] = {}
        self._prepared: Prepared | None = None

    def add(self, flat: torch.Tensor, entries: Sequence[FlattenedTensorMetadata]) -> None:
        """Take the tensors of a bucket, (bytes,) uint8, which may be reused afterwards. Raises WeightsRefused."""
        if self._prepared is not None:
            raise WeightsRefused("all tensors of the update are there already; begin another update")
        try:
            for name, tensor in split(flat.clone(), entries):
                self._there[name] = checked(name, tensor, self._wanted)
        except BadBucket as error:
            raise WeightsRefused(str(error)) from error
        if not missing_names(self._there.keys(), self._wanted):
            self._prepared = self._decoder.prepare(whole(self._there, self._wanted, "the update"))
            self._there = {}

    def prepared(self) -> Prepared:
        """The whole update, laid out. Raises WeightsRefused where tensors lack."""
        if self._prepared is None:
            whole(self._there, self._wanted, "the update")
        assert self._prepared is not None
        return self._prepared

    def checksums(self) -> dict[str, str]:
        """Of the tensors that `prepared` holds, as those of served ones. Raises WeightsRefused where tensors lack."""
        values = self.prepared().values()
        return checksums({name: values[held] for name, held in self._wanted.items() if held in values})
