"""A bucket on a GPU is opened by another process through CUDA IPC, in the form that SGLang opens."""

from __future__ import annotations

import base64
import io
import pickle
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch
from torch import multiprocessing

from weir.engine.transfer.bucket import FlattenedTensorMetadata, laid_out, packed, split
from weir.trainer.http_json import Refused
from weir.trainer.publishing.device_buckets import places_for
from weir.trainer.publishing.members import Member

ON_GPU = Member(
    url="http://127.0.0.1:1",
    stages=False,
    relays=False,
    takes_deltas=False,
    takes_adapters=False,
    takes_fp8=False,
    version="0",
    dtype="auto",
    device="cuda",
    groups=(),
    num_ranks=1,
    gpus=(0,),
    one_replica=True,
    is_local=True,
    shares_memory=False,
)


def open_and_sum(text: str, pipe: Connection) -> None:
    """As SGLang does: the GPU is found by its UUID, then torch opens the handle."""
    from torch.multiprocessing import reductions

    rebuild: Any = reductions.rebuild_cuda_tensor

    def by_uuid(*held: Any) -> Any:
        assert held[6] == str(torch.cuda.get_device_properties(0).uuid)
        return rebuild(*held[:6], 0, *held[7:])

    reductions.rebuild_cuda_tensor = by_uuid

    class Opened(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            return (
                FlattenedTensorMetadata
                if name == FlattenedTensorMetadata.__name__
                else super().find_class(module, name)
            )

    held = Opened(io.BytesIO(base64.b64decode(text))).load()
    tensors = split(held["flattened_tensor"], held["metadata"])
    pipe.send([(name, tensor.device.type, tensor.sum().item()) for name, tensor in tensors])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_another_process_reads_the_bucket_from_the_gpu() -> None:
    entries = laid_out([("a", torch.float32, [3]), ("b", torch.float32, [2, 2])])
    flat = torch.arange(7, dtype=torch.float32).view(torch.uint8)
    (copy,) = places_for(ON_GPU)(flat, 1)
    assert copy.is_cuda
    context: Any = multiprocessing.get_context("spawn")
    own, its = context.Pipe()
    process = context.Process(target=open_and_sum, args=(packed(copy, entries), its))
    process.start()
    assert own.recv() == [("a", "cuda", 3.0), ("b", "cuda", 18.0)]
    process.join()


def test_an_engine_whose_gpu_is_out_of_reach_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(Refused, match=r"it computes on GPU 0, and this process sees 0; set publish\.way"):
        places_for(ON_GPU)
