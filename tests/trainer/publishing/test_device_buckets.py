"""Weights between GPUs: a bucket that another process opens by CUDA IPC as SGLang does, and a broadcast of NCCL."""

from __future__ import annotations

import base64
import dataclasses
import io
import pickle
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch
from torch import multiprocessing

from weir.engine.transfer.bucket import FlattenedTensorMetadata, laid_out, packed, split
from weir.engine.transfer.group import WeightGroup, join_store, serve_store
from weir.trainer.http_json import Refused
from weir.trainer.publishing.device_buckets import places_for
from weir.trainer.publishing.members import Member

ON_GPU = Member(
    url="http://127.0.0.1:1",
    stages=False,
    relays=False,
    takes_deltas=False,
    takes_adapters=False,
    serves_adapters=False,
    folder="",
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
        uuids = [str(torch.cuda.get_device_properties(device).uuid) for device in range(torch.cuda.device_count())]
        return rebuild(*held[:6], uuids.index(held[6]), *held[7:])

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
    pipe.send([(name, str(tensor.device), tensor.sum().item()) for name, tensor in tensors])


def receive(pipe: Connection, port: int) -> None:
    """As an engine on the second GPU does."""
    torch.cuda.set_device(1)
    store = join_store("127.0.0.1", port, 2, 60.0)
    group = WeightGroup(store, "weir-gpus", rank=1, world_size=2, backend="nccl", timeout_s=60.0)
    flat = group.room(28)
    group.broadcast(flat)
    pipe.send((str(flat.device), flat.cpu().view(torch.float32).tolist()))
    group.leave()


def in_another_process(act: Any, *arguments: Any) -> tuple[Any, Connection]:
    """A process that does this, and the pipe on which it answers in the place of None."""
    context: Any = multiprocessing.get_context("spawn")
    own, its = context.Pipe()
    process = context.Process(target=act, args=[its if argument is None else argument for argument in arguments])
    process.start()
    return process, own


def needs_gpus(number: int) -> pytest.MarkDecorator:
    reason = f"needs {number} GPUs that torch can use"
    return pytest.mark.skipif(torch.cuda.device_count() < number, reason=reason)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "gpus",
    [
        pytest.param((0,), marks=needs_gpus(1)),
        pytest.param((1,), marks=needs_gpus(2)),
        pytest.param((0, 1), marks=needs_gpus(2)),
    ],
)
def test_another_process_reads_the_bucket_from_the_gpu_of_each_rank(gpus: tuple[int, ...]) -> None:
    entries = laid_out([("a", torch.float32, [3]), ("b", torch.float32, [2, 2])])
    flat = torch.arange(7, dtype=torch.float32).view(torch.uint8)
    copies = places_for(dataclasses.replace(ON_GPU, gpus=gpus, num_ranks=len(gpus)))(flat, len(gpus))
    assert [str(copy.device) for copy in copies] == [f"cuda:{device}" for device in gpus]
    for copy, device in zip(copies, gpus, strict=True):
        process, answers = in_another_process(open_and_sum, packed(copy, entries), None)
        assert answers.recv() == [("a", f"cuda:{device}", 3.0), ("b", f"cuda:{device}", 18.0)]
        process.join()


@pytest.mark.gpu
@needs_gpus(2)
def test_nccl_brings_a_bucket_from_one_gpu_to_the_other() -> None:
    store = serve_store("127.0.0.1", 2, 60.0)
    process, answers = in_another_process(receive, None, store.port)
    group = WeightGroup(store, "weir-gpus", rank=0, world_size=2, backend="nccl", timeout_s=60.0)
    group.broadcast(torch.arange(7, dtype=torch.float32).view(torch.uint8).to(group.device))
    assert answers.recv() == ("cuda:1", [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    group.leave()
    process.join()


def test_an_engine_whose_gpu_is_out_of_reach_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(Refused, match=r"it computes on GPU 0, and this process sees 0; set publish\.way"):
        places_for(ON_GPU)
