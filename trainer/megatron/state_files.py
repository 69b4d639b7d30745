"""The training state of a version folder, written by all ranks and read by rows: what `learner/rank_files.py` is for
the torch backend.

Invariant: the checkpoint has the form and the names of the torch backend's, so that another layout and the torch
backend continue from it, and it from theirs. A rank holds whole rows of its own share only, and reads the rows that
hold what it owns.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType

from weir.trainer.learner.rank_files import write_state
from weir.trainer.learner.saved_state import (
    AVERAGE,
    FIRST,
    KL_COEF,
    NUM_STEPS,
    POLICY,
    SECOND,
    STEP,
    WEIGHTS,
    SavedState,
)
from weir.trainer.megatron.architecture import Architecture
from weir.trainer.megatron.owned_shards import synchronise
from weir.trainer.megatron.packed_model import PackedChunks
from weir.trainer.megatron.state_names import StatePlace, state_places
from weir.trainer.megatron.stepper import MegatronStepper
from weir.trainer.megatron.weight_map import Place
from weir.trainer.megatron.weights import Rows, hand_out, read
from weir.trainer.model.ops.eight_bit import SCALE, decoded

Part = tuple[str, StatePlace, int, torch.Tensor]  # key of the state, its tensor, first row, rows


class OfMatrices(DefaultSavePlanner):
    """Plans a checkpoint of rows of tensors, besides whole ones that the first rank has."""

    def __init__(self, parts: list[Part]) -> None:
        super().__init__(flatten_state_dict=False)
        self._parts = {(key, _offsets(place.shape, row)): (place, rows) for key, place, row, rows in parts}

    def create_local_plan(self) -> SavePlan:
        """As `SavePlanner.create_local_plan`."""
        plan = super().create_local_plan()
        self.plan = SavePlan([*plan.items, *(self._item(*key) for key in self._parts)])
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> Any:
        """As `SavePlanner.resolve_data`."""
        offset = write_item.index.offset
        found = self._parts.get((write_item.index.fqn, tuple(offset or ())))
        return super().resolve_data(write_item) if found is None else found[1]

    def _item(self, key: str, offset: tuple[int, ...]) -> WriteItem:
        place, rows = self._parts[key, offset]
        sizes = torch.Size((1,) * (len(place.shape) - rows.ndim) + tuple(rows.shape))
        chunk = ChunkStorageMetadata(offsets=torch.Size(offset), sizes=sizes)
        properties = TensorProperties.create_from_tensor(rows)
        return WriteItem(
            index=MetadataIndex(key, torch.Size(offset)),
            type=WriteItemType.SHARD,
            tensor_data=TensorWriteData(chunk=chunk, properties=properties, size=torch.Size(place.shape)),
        )


def _offsets(shape: tuple[int, ...], row: int) -> tuple[int, ...]:
    """Where a row of a tensor that is taken as a matrix begins."""
    if len(shape) < 3:
        return (row, *(0 for _ in shape[1:]))
    return (row // shape[1], row % shape[1], 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A module with its optimiser, as which `part` of the state (`saved_state.POLICY` or `CRITIC`) it is kept."""

    part: str
    stepper: MegatronStepper
    network: PackedChunks
    model: Architecture
    place: Place

    def places(self) -> dict[str, StatePlace]:
        """The places of its stored tensors in the state."""
        return state_places(self.model, self.part)


def write(trained: Sequence[Trained], folder: Path, *, weights: Container[str], kl_coef: float | None) -> None:
    """Write the state into an existing folder, stepped weights of the parts in `weights`; all ranks call it.

    Raises OSError.
    """
    scalars = {} if kl_coef is None else {f"{POLICY}/{KL_COEF}": torch.tensor(kl_coef, dtype=torch.float64)}
    parts: list[Part] = []
    for one in trained:
        scalars |= _scalars(one)
        for kind in _kinds(one.stepper, weights=one.part in weights):
            parts += _parts(one, kind)
    write_state(scalars, folder, planner=OfMatrices(parts))


def _scalars(one: Trained) -> dict[str, torch.Tensor]:
    taken = one.stepper.num_steps
    found = {f"{one.part}/{NUM_STEPS}": torch.tensor(taken)}
    if taken:
        found |= {f"{one.part}/{STEP}/{at.name}": torch.tensor(float(taken)) for at in one.places().values()}
    return found


def _kinds(stepper: MegatronStepper, *, weights: bool) -> list[str]:
    moments = [FIRST, SECOND] if stepper.num_steps else []
    return moments + [WEIGHTS] * weights + [AVERAGE] * (stepper.average is not None)


def _parts(one: Trained, kind: str) -> Iterator[Part]:
    """What this rank writes of one kind of numbers."""
    places, value = one.places(), partial(one.stepper.whole, kind)
    for name, rows, start in hand_out(one.network, one.model, one.place, value):
        at = places[name]
        yield f"{one.part}/{kind}/{at.name}", at, at.first + start, rows.cpu().contiguous()


@torch.no_grad()
def load(one: Trained, saved: SavedState | None, stored: Rows | None) -> None:
    """Give this rank's float32 weights, moments and average their numbers.

    Weights are those of the state, else of `stored`, else what the parameters hold. Raises OSError, `KeyError` and
    `ValueError` where the state is damaged or belongs to another model.
    """
    stepper, reader = one.stepper, _Reader(one, saved)
    stepper.num_steps = 0 if saved is None else int(saved.rows(f"{one.part}/{NUM_STEPS}", 0, 1))
    for at, shard in enumerate(stepper.owned):
        if (weights := reader.rows(WEIGHTS) or stored) is not None:
            shard.main.copy_(reader.of(shard, weights))
        moments = {kind: rows for kind in (FIRST, SECOND) if (rows := reader.rows(kind)) is not None}
        if stepper.num_steps and moments:
            stepper.set_moments(shard, {kind: reader.of(shard, rows) for kind, rows in moments.items()})
        if stepper.average is not None:
            rows = reader.rows(AVERAGE)
            stepper.average[at].copy_(shard.main if rows is None else reader.of(shard, rows))
    synchronise(stepper.optimizer)


class _Reader:
    """Reads the numbers of a shard from the rows of stored tensors, or of the state."""

    def __init__(self, one: Trained, saved: SavedState | None) -> None:
        self._model, self._place, self._part, self._saved = one.model, one.place, one.part, saved
        self._names = {parameter: name for name, parameter in one.network.named_parameters()}
        self._places = one.places()
        self._kinds = set(self._found_kinds())

    def _found_kinds(self) -> Iterator[str]:
        for name in self._saved or ():
            if name.startswith(f"{self._part}/"):
                yield name.split("/")[1]

    def rows(self, kind: str) -> Rows | None:
        """How rows of stored tensors are read from the state; None where it holds none of the kind."""
        if self._saved is None or kind not in self._kinds:
            return None
        saved = self._saved

        def read_rows(name: str, start: int, stop: int) -> torch.Tensor:
            at = self._places[name]
            rows, scale = (f"{self._part}/{of}/{at.name}" for of in (kind, kind + SCALE))
            found = saved.matrix_rows(rows, at.first + start, at.first + stop)
            if scale not in saved:
                return found
            return decoded(found, saved.matrix_rows(scale, at.first + start, at.first + stop), kind)

        return read_rows

    def of(self, shard: Any, rows: Rows) -> torch.Tensor:
        """The numbers of a shard."""
        name = self._names[shard.parameter]
        found = read(name, shard.parameter, self._model, self._place, rows, shard.rows)
        own: torch.Tensor = shard.of_rows(found)
        return own
