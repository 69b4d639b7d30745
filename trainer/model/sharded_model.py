"""A model of which each rank only ever holds its own rows: built without memory, sharded, then filled from the files.

Invariant: a rank reads the rows that it owns, and of tensors that all ranks need (persistent buffers) the whole. The
filled weights are the same numbers as those of `load_model`, in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from transformers import AutoConfig, AutoModelForCausalLM

from weir.trainer.errors import TrainerUsageError
from weir.trainer.model.lora import LoraShape, add_adapters
from weir.trainer.model.stored_names import places
from weir.trainer.model.stored_tensors import StoredTensors
from weir.trainer.model.token_model import Precision, TokenModel, check_supported

FLOAT32 = torch.float32


def empty_model(
    folder: Path,
    *,
    precision: Precision = "float32",
    checkpointing: bool = False,
    offloads: bool = False,
    lora: LoraShape | None = None,
    seed: int = 0,
) -> TokenModel:
    """The model of a folder on torch's meta device: weights have shapes and no numbers.

    Arguments are those of `load_model`; new adapters are drawn, on the CPU, to the same numbers. Raises
    `TrainerUsageError` when the folder describes no model that is supported.
    """
    try:
        config: Any = AutoConfig.from_pretrained(folder, local_files_only=True)
        with torch.device("meta"):
            network: Any = AutoModelForCausalLM.from_config(config, dtype=FLOAT32)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise TrainerUsageError(f"{folder} is not a Hugging Face model folder that loads: {error}") from error
    check_supported(network, folder)
    if checkpointing:
        network.activation_checkpointing_enable({"use_reentrant": False})
    if lora is not None:
        _draw_adapters(network, lora, seed)
    return TokenModel(network.train(), precision, offloads=offloads)


def fill(
    module: Any,
    stored: StoredTensors,
    stored_name: Callable[[str], str | None],
    *,
    network: Any,
    device: torch.device,
    home: torch.device,
) -> None:
    """Give a sharded module its numbers: this rank's rows of every parameter that `stored_name` knows, in float32.

    The rows lie on `home`, buffers on `device`, which computes.

    `network` is the Hugging Face model that the module is or was made of; it computes the buffers that no file holds.
    Raises `TrainerUsageError` where the files lack a tensor.
    """
    filled: dict[int, torch.nn.Parameter] = {}
    state: dict[str, torch.nn.Parameter] = {}
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
        if (
            (own := stored_name(name)) is not None
            and id(parameter) not in filled
            and _is_stored(own, stored, parameter)
        ):
            filled[id(parameter)] = _filled(parameter, own, stored, home)
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if id(parameter) in filled:
            state[name] = filled[id(parameter)]
        elif parameter.device.type == "meta":  # says what is missing
            places(str(stored_name(name)), tuple(parameter.shape), stored)
    module.load_state_dict(state, strict=False, assign=True)
    _fill_buffers(module, stored, stored_name, network, device)


def name_in_files(name: str) -> str | None:
    """The stored name of a parameter of a `TokenModel`; None for an adapter."""
    if ".lora_A." in name or ".lora_B." in name:
        return None
    return name.removeprefix("network.").replace(".base_layer.", ".")


def own_rows(parameter: Any) -> tuple[int, int]:
    """The rows, as a range of the first dimension, that this rank holds of a parameter; all where it is not sharded."""
    if not isinstance(parameter, DTensor):
        return 0, parameter.shape[0] if parameter.ndim else 1
    shape, offset = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)
    return offset[0], offset[0] + shape[0]


def local_rows(parameter: Any) -> torch.Tensor:
    """The rows that this rank holds, in the parameter's own memory."""
    data = parameter.detach()
    found: torch.Tensor = data.to_local() if isinstance(data, DTensor) else data
    return found


def like(parameter: Any, local: torch.Tensor) -> Any:
    """A tensor whose rows are sharded as a parameter's are, of which this rank holds `local`."""
    if not isinstance(parameter, DTensor):
        return local
    shape = torch.Size((parameter.shape[0], *local.shape[1:]))
    return DTensor.from_local(
        local,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=shape,
        stride=torch.empty(shape, device="meta").stride(),
    )


def read_rows(name: str, shape: tuple[int, ...], rows: tuple[int, int], stored: StoredTensors) -> torch.Tensor:
    """Rows of a parameter in float32, from the stored tensors that hold it. Raises `TrainerUsageError`."""
    start, stop = rows
    found = places(name, shape, stored)
    if found[0].expert is None:
        if stored.shape(name) != shape:
            raise TrainerUsageError(
                f"{stored.folder}: {name} has the shape {stored.shape(name)}, and config.json says {shape}: they "
                "belong to different models"
            )
        return stored.rows(name, start, stop).to(FLOAT32)
    local = torch.empty((stop - start, *shape[1:]), dtype=FLOAT32)
    for place in found:
        if place.expert is not None and start <= place.expert < stop:
            local[place.expert - start, place.start : place.stop] = stored.whole(place.name)
    return local


def _is_stored(name: str, stored: StoredTensors, parameter: Any) -> bool:
    """Whether the files hold a parameter under this one of its names (tied weights have several)."""
    try:
        places(name, tuple(parameter.shape), stored)
    except TrainerUsageError:
        return False
    return True


def _filled(parameter: Any, name: str, stored: StoredTensors, device: torch.device) -> torch.nn.Parameter:
    local = read_rows(name, tuple(parameter.shape), own_rows(parameter), stored).to(device)
    return torch.nn.Parameter(like(parameter, local), requires_grad=parameter.requires_grad)


def _fill_buffers(
    module: Any,
    stored: StoredTensors,
    stored_name: Callable[[str], str | None],
    network: Any,
    device: torch.device,
) -> None:
    """Buffers are the same on all ranks: read whole where a file holds them, else computed as transformers does."""
    for path, part in module.named_modules():
        empty = {name: buffer for name, buffer in part._buffers.items() if buffer is not None and buffer.is_meta}
        if not empty:
            continue
        for name, buffer in empty.items():
            part._buffers[name] = torch.full_like(buffer, 0, device=device)
            if buffer.is_floating_point():
                part._buffers[name].fill_(torch.nan)
        network._init_weights(part)
        for name in empty:
            if (own := stored_name(f"{path}.{name}")) is not None and own in stored:
                part._buffers[name].copy_(stored.whole(own))
            if part._buffers[name].isnan().any():
                raise TrainerUsageError(
                    f"{stored.folder}: nothing computes the buffer {path}.{name} of this model family on ranks; train "
                    "it with processes = 1"
                )


def _draw_adapters(network: Any, lora: LoraShape, seed: int) -> None:
    """Add adapters whose numbers are those that a loaded model gets: drawn on the CPU, where the layers seem to be."""
    layers: Mapping[str, Any] = {
        name: part
        for name, part in network.named_modules()
        if isinstance(part, torch.nn.Linear) and name.rpartition(".")[2] in lora.targets
    }
    for layer in layers.values():  # one number that is seen everywhere
        layer.weight = torch.nn.Parameter(torch.zeros(()).expand(layer.weight.shape))
    add_adapters(network, lora, seed)
    for layer in layers.values():
        layer.weight = torch.nn.Parameter(torch.empty_like(layer.weight, device="meta"), requires_grad=False)
