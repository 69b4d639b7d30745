"""Weights between a Hugging Face folder and this rank's parameters, tensor by tensor, in both directions.

Invariant: a rank reads of each stored tensor the rows that it owns (of matrices that are divided by columns, all rows,
one tensor at a time), and hands out whole rows: column parts of one matrix meet on the ranks that divide it, each of
which hands out its share of the rows. Of ranks that hold the same numbers, one hands them out, parameter by parameter
another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from megatron.core import parallel_state

from weir.trainer.errors import TrainerUsageError
from weir.trainer.megatron.architecture import Architecture
from weir.trainer.megatron.packed_model import PackedChunks, is_divided
from weir.trainer.megatron.weight_map import EXPERT_BIAS, Piece, Place, pieces, stored_shapes
from weir.trainer.model.shared_files import Published, SharedFiles
from weir.trainer.model.stored_tensors import StoredTensors

Rows = Callable[[str, int, int], torch.Tensor]  # of a stored tensor


def check_shapes(model: Architecture, stored: StoredTensors) -> None:
    """Raise `TrainerUsageError` where a folder's files lack a tensor, or hold one of another shape."""
    for name, shape in stored_shapes(model):
        if name not in stored:
            raise TrainerUsageError(
                f"{stored.folder}: the files hold no {name}; a file is missing, or the model was saved in another form "
                "than transformers saves it"
            )
        if stored.shape(name) != shape:
            raise TrainerUsageError(
                f"{stored.folder}: {name} has the shape {stored.shape(name)}, and config.json says {shape}: they "
                "belong to different models"
            )


@torch.no_grad()
def fill(network: PackedChunks, model: Architecture, place: Place, rows: Rows) -> None:
    """Give all parameters their numbers, rounded to the parameters' precision, and routers their biases."""
    for name, tensor in [*network.named_parameters(), *_expert_biases(network)]:
        tensor.copy_(read(name, tensor, model, place, rows))


def _expert_biases(network: PackedChunks) -> list[tuple[str, torch.Tensor]]:
    """The biases by which tokens choose experts: every rank of a stage has them, and none trains them."""
    return [(name, buffer) for name, buffer in network.named_buffers() if name.endswith(".router.expert_bias")]


def read(
    name: str,
    parameter: torch.Tensor,
    model: Architecture,
    place: Place,
    rows: Rows,
    part: tuple[int, int] | None = None,
) -> torch.Tensor:
    """This rank's part of a parameter, or rows of that, from the rows of stored tensors, in float32 on the CPU."""
    start, stop = part or (0, len(parameter))
    found = torch.zeros((stop - start, *parameter.shape[1:]))
    at = 0
    for piece in pieces(name, model, place):
        first, last = max(start, at), min(stop, at + piece.stop - piece.start)
        if first < last:
            own = rows(piece.name, piece.start + first - at, piece.start + last - at)
            found[first - start : last - start] = own if piece.columns is None else own[:, slice(*piece.columns)]
        at += piece.stop - piece.start
    return found


@torch.no_grad()
def hand_out(
    network: PackedChunks, model: Architecture, place: Place, value: Callable[[torch.nn.Parameter], torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor, int]]:
    """Stored name, whole rows and the first row of what this rank has to write; all ranks go through all of it.

    `value` gives this rank's part of a tensor that belongs to a parameter and has its shape; it may be collective.
    """
    for index, (name, parameter) in enumerate(network.named_parameters()):
        if name.endswith("output_layer.weight") and model.tied:  # the first stage's copy of the embedding is handed out
            continue
        tensor = value(parameter)
        of_expert = ".experts." in name
        if index % _replicas(of_expert) != _replica(of_expert):
            continue
        own = pieces(name, model, place)
        if own[0].columns is not None:
            yield _rows_of_columns(own[0], tensor, of_expert)
        elif place.tensor == 0 or is_divided(name):
            at = 0
            for piece in own:
                yield piece.name, tensor[at : at + piece.stop - piece.start], piece.start
                at += piece.stop - piece.start


def _replicas(of_expert: bool) -> int:
    """How many processes hold the same numbers of a parameter, tensor ranks apart."""
    if of_expert:
        return int(parallel_state.get_expert_data_parallel_world_size())
    return int(parallel_state.get_data_parallel_world_size(with_context_parallel=True))


def _replica(of_expert: bool) -> int:
    if of_expert:
        return int(parallel_state.get_expert_data_parallel_rank())
    return int(parallel_state.get_data_parallel_rank(with_context_parallel=True))


def _rows_of_columns(piece: Piece, tensor: torch.Tensor, of_expert: bool) -> tuple[str, torch.Tensor, int]:
    """This rank's share of the rows of a matrix of which each rank of a group holds some columns."""
    if of_expert:
        group = parallel_state.get_expert_tensor_parallel_group()
    else:
        group = parallel_state.get_tensor_model_parallel_group()
    count, rank = dist.get_world_size(group), dist.get_rank(group)
    columns = [torch.empty_like(tensor) for _ in range(count)]
    dist.all_gather(columns, tensor.contiguous(), group=group)
    start, stop = (len(tensor) * at // count for at in (rank, rank + 1))
    return piece.name, torch.cat([part[start:stop] for part in columns], dim=1), start


def published(
    network: PackedChunks,
    model: Architecture,
    place: Place,
    value: Callable[[torch.nn.Parameter], torch.Tensor] | None = None,
) -> Published:
    """This rank's part of all weights, or of `value` of them."""
    shapes = dict(stored_shapes(model))

    def handed_out() -> Iterator[tuple[str, torch.Tensor, int]]:
        yield from hand_out(network, model, place, value or torch.Tensor.detach)
        if place.tensor == 0 and _replica(of_expert=False) == 0:
            for name, bias in _expert_biases(network):
                yield pieces(name, model, place)[0].name, bias, 0

    return Published(
        shapes=shapes,
        dtype=next(network.parameters()).dtype,
        exact={name for name in shapes if name.endswith(EXPERT_BIAS)},
        rows=handed_out(),
        stays=value is None,
    )


def write(parts: Published, folder: Path) -> None:
    """Write the published files into an existing folder; all ranks call it. Raises OSError."""
    files = SharedFiles(folder, parts.shapes, parts.dtype, exact=parts.exact)
    if dist.get_rank() == 0:
        files.create()
    dist.barrier()
    for name, rows, start in parts.rows:
        files.write(name, rows, start)
    dist.barrier()  # no rank leaves before all have written
