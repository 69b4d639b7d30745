"""Where the bytes of a bucket lie for each rank of an engine: in shared memory, or on the ranks' own GPUs by CUDA IPC.

A GPU's copy belongs to this process until the engine has answered; then its memory goes to the next bucket. The engine
finds the device by its UUID, since each process may number the GPUs that it sees in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from weir.trainer.http_json import Refused
from weir.trainer.publishing.members import Member

Places = Callable[[torch.Tensor, int], Sequence[torch.Tensor]]  # a bucket, (bytes,) uint8, and the number of ranks


def in_memory(flat: torch.Tensor, num_ranks: int) -> list[torch.Tensor]:
    """All ranks read the same shared memory."""
    return [flat] * num_ranks


def places_for(member: Member) -> Places:
    """By the device that the engine receives on. Raises `Refused` where this process cannot reach it."""
    if not member.is_local:
        raise Refused("it runs on another machine; set publish.way to auto or distributed")
    if member.stages or member.device != "cuda":  # it keeps what arrives in the host's memory
        return in_memory
    seen = torch.cuda.device_count()
    strange = next((device for device in member.gpus if device >= seen), None)
    if strange is not None:
        raise Refused(f"it computes on GPU {strange}, and this process sees {seen}; set publish.way to auto or tensor")

    def on_devices(flat: torch.Tensor, _: int) -> list[torch.Tensor]:
        torch.cuda.ipc_collect()  # type: ignore[no-untyped-call]  # copies that the engine has closed since
        copies = [flat.to(torch.device("cuda", device)) for device in member.gpus]
        for device in member.gpus:
            torch.cuda.synchronize(device)
        return copies

    return on_devices
