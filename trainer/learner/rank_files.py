"""What ranks write and read of a version folder, each its own rows: published weights and training state.

Invariant: nothing is gathered on one rank, but for the adapters of LoRA, layer by layer. The published files are those
of one process, to the byte; the state is a checkpoint of torch.distributed.checkpoint, which any number of processes
continues from (`saved_state.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import StorageMeta
from torch.distributed.checkpoint.planner import SavePlanner
from torch.distributed.checkpoint.state_dict_saver import save
from torch.serialization import get_crc32_options, set_crc32_options

from weir.trainer.learner.distributed import Ranks, give_back_gathered
from weir.trainer.learner.eight_bit import STATE
from weir.trainer.learner.optimizer import Stepper
from weir.trainer.learner.saved_state import AVERAGE, NUM_STEPS, STEP, WEIGHTS, SavedState
from weir.trainer.model.lora import LoraShape, adapters_of, is_adapter, save_adapters
from weir.trainer.model.sharded_model import like, local_rows, name_in_files, own_rows
from weir.trainer.model.shared_files import Published, SharedFiles
from weir.trainer.model.stored_names import Place, places
from weir.trainer.model.stored_tensors import StoredTensors
from weir.trainer.model.token_model import TokenModel, save_config


def write_weights(
    model: TokenModel,
    stepper: Stepper,
    folder: Path,
    *,
    like_folder: Path,
    base: Path | None = None,
    ranks: Ranks,
    averaged: bool,
    lora: LoraShape | None,
) -> None:
    """Write the published files; all ranks call it. `like_folder` has the names of tensors. Raises OSError.

    With LoRA the weights have the adapters merged into them, which are also written where `base` names what they were
    trained on.
    """
    give_back_gathered(model)
    adapters, of_average = _adapters(model, stepper, averaged)
    parts = _parts(model, stepper, like_folder, of_average, ranks=ranks, averaged=averaged, lora=lora)
    files = SharedFiles(folder, parts.shapes, parts.dtype, exact=parts.exact)
    if ranks.rank == 0:
        files.create()
        save_config(model, folder, tokenizer_from=like_folder)
    dist.barrier()
    for name, rows, start in parts.rows:
        files.write(name, rows, start)
    if lora is not None and base is not None and ranks.rank == 0:
        save_adapters(adapters, lora, folder, base=base, published=of_average if averaged else None)
    dist.barrier()  # no rank leaves before all have written


def published(
    model: TokenModel, stepper: Stepper, like_folder: Path, *, ranks: Ranks, averaged: bool, lora: LoraShape | None
) -> Published:
    """What `write_weights` writes, this rank's part of it; all ranks call it."""
    give_back_gathered(model)
    _, of_average = _adapters(model, stepper, averaged)
    return _parts(model, stepper, like_folder, of_average, ranks=ranks, averaged=averaged, lora=lora)


def _adapters(
    model: TokenModel, stepper: Stepper, averaged: bool
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The adapters of LoRA as they are stepped, and as they are published; a collective operation."""

    def found() -> dict[str, torch.Tensor]:
        return {name: whole(tensor) for name, tensor in model.named_parameters() if is_adapter(name)}

    stepped = found()
    if not averaged or stepper.average is None:
        return stepped, stepped
    with stepper.average.in_place():
        return stepped, found()


def _parts(
    model: TokenModel,
    stepper: Stepper,
    like_folder: Path,
    adapters: dict[str, torch.Tensor],
    *,
    ranks: Ranks,
    averaged: bool,
    lora: LoraShape | None,
) -> Published:
    tensors = _published(model)
    stored = StoredTensors(like_folder)
    found = {name: places(str(name_in_files(name)), tuple(t.shape), stored) for name, t in tensors.items()}

    def handed_out() -> Iterator[tuple[str, torch.Tensor, int]]:
        with stepper.average.in_place() if averaged and stepper.average is not None else nullcontext():
            for name, tensor in tensors.items():
                rows, start = local_rows(tensor), own_rows(tensor)[0]
                if lora is not None and (pair := adapters_of(name)) is not None:
                    added = (adapters[pair[1]] @ adapters[pair[0]]) * lora.scaling
                    rows = rows + added[start : start + len(rows)]
                if ranks.is_first_copy:
                    yield from _stored_rows(found[name], rows, start)

    return Published(
        shapes=_shapes(tensors, found),
        dtype=model.compute,
        exact={place.name for name, _ in model.named_buffers() if name in found for place in found[name]},
        rows=handed_out(),
        stays=not averaged and lora is None,
    )


def _published(model: TokenModel) -> dict[str, Any]:
    """The tensors that are published, by their name in the module."""
    tensors: dict[str, Any] = {name: p for name, p in model.named_parameters() if not is_adapter(name)}
    kept = model.state_dict().keys()
    return tensors | {name: buffer for name, buffer in model.named_buffers() if name in kept}


def _shapes(tensors: dict[str, Any], found: dict[str, list[Place]]) -> dict[str, tuple[int, ...]]:
    """The shapes of the stored tensors."""
    return {
        place.name: tuple(tensors[name].shape)
        if place.expert is None
        else (place.stop - place.start, *tensors[name].shape[2:])
        for name, parts in found.items()
        for place in parts
    }


def _stored_rows(found: list[Place], rows: torch.Tensor, start: int) -> Iterator[tuple[str, torch.Tensor, int]]:
    """Rows of a tensor as rows of the stored ones that it consists of."""
    if found[0].expert is None:
        yield found[0].name, rows, start
        return
    for place in found:
        if place.expert is not None and start <= place.expert < start + len(rows):
            yield place.name, rows[place.expert - start, place.start : place.stop], 0


def whole(tensor: Any) -> torch.Tensor:
    """A tensor of all ranks' rows, on each of them; a collective operation."""
    found: torch.Tensor = tensor.detach()
    return found.full_tensor() if hasattr(found, "full_tensor") else found


def state_tensors(stepper: Stepper, part: str, *, weights: bool) -> dict[str, Any]:
    """Moments, step counts, average and, with `weights`, the stepped weights of a module, by name of `saved_state`."""
    give_back_gathered(stepper.module)
    found: dict[str, Any] = {f"{part}/{NUM_STEPS}": torch.tensor(stepper.num_steps)}
    for name, parameter in stepper.module.named_parameters():
        for kind, value in stepper.optimizer.state.get(parameter, {}).items():
            found[f"{part}/{kind}/{name}"] = value
        if weights:
            found[f"{part}/{WEIGHTS}/{name}"] = parameter.detach()
    if stepper.average is not None:
        found |= {
            f"{part}/{AVERAGE}/{name}": like(p, mean) for name, p, mean in stepper.average.by_name(stepper.module)
        }
    return found


def write_state(tensors: dict[str, Any], folder: Path, *, planner: SavePlanner | None = None) -> None:
    """Write a checkpoint into an existing folder, each rank its own part; all ranks call it. Raises OSError.

    A `planner` may know of further tensors. The files have no checksums of their own, which would take as long as
    writing: the version's entries are their hashes.
    """
    computed = get_crc32_options()
    set_crc32_options(False)
    try:
        save(tensors, storage_writer=_SameBytes(folder, sync_files=False), planner=planner)
    finally:
        set_crc32_options(computed)


class _SameBytes(FileSystemWriter):
    """A writer whose index depends on the state alone, and not on the folder or the run."""

    def storage_meta(self) -> StorageMeta:
        return StorageMeta()


@torch.no_grad()
def read_state(stepper: Stepper, part: str, saved: SavedState) -> None:
    """Load what `state_tensors` names, this rank's rows.

    Raises OSError, `KeyError` and `ValueError` where it is damaged or belongs to another module.
    """
    stepper.num_steps = int(saved.rows(f"{part}/{NUM_STEPS}", 0, 1))
    for name, parameter in stepper.module.named_parameters():
        local = local_rows(parameter)
        if f"{part}/{WEIGHTS}/{name}" in saved:
            local.copy_(saved.rows(f"{part}/{WEIGHTS}/{name}", *own_rows(parameter)))
        if f"{part}/{STEP}/{name}" in saved:
            found = {kind: f"{part}/{kind}/{name}" for kind in STATE if f"{part}/{kind}/{name}" in saved}
            stepper.set_moments(parameter, {kind: saved.rows(at, *own_rows(parameter)) for kind, at in found.items()})
    if stepper.average is not None:
        stepper.average.restart()
        for name, parameter, mean in stepper.average.by_name(stepper.module):
            if f"{part}/{AVERAGE}/{name}" in saved:
                mean.copy_(saved.rows(f"{part}/{AVERAGE}/{name}", *own_rows(parameter)))
    stepper.put_moments_away()
