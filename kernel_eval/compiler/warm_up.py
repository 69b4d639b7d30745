"""Warms up the zygote of recorders and builders: compiles some kernels once, and records a call.

So no child pays for the first use of the compiler, of torch's modes, of seeds and arenas.
"""

from __future__ import annotations

import os

import msgspec
import torch
import triton
import triton.language as tl
from triton.backends.nvidia.compiler import CUDABackend

from weir.kernel_eval.compiler import mlir_context
from weir.kernel_eval.ipc import tensor_arena
from weir.kernel_eval.tasks.seeds import seed_everything
from weir.kernel_eval.toolchain import stub_driver
from weir.kernel_eval.toolchain.targets import Target
from weir.kernel_eval.worker.host_tensors import HostTensors
from weir.kernel_eval.worker.kernel_values import HostReads, KernelValues
from weir.kernel_eval.worker.recorder import Recorder


@triton.jit  # type: ignore[untyped-decorator]
def _elementwise(x_ptr, out_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    y = tl.where(x > 0, tl.exp(-x), tl.sqrt(tl.abs(x))) + tl.sigmoid(x) + tl.maximum(x, 0.0) + tl.minimum(x, 1.0)
    tl.store(out_ptr + offsets, y, mask=mask)


@triton.jit  # type: ignore[untyped-decorator]
def _reductions(x_ptr, out_ptr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(out_ptr, tl.sum(x, axis=0) + tl.max(x, axis=0) + tl.min(x, axis=0) + tl.sum(tl.zeros_like(x), axis=0))


@triton.jit  # type: ignore[untyped-decorator]
def _product(x_ptr, out_ptr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    index = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + index)
    tl.store(out_ptr + index, tl.dot(x, tl.trans(x)) + tl.zeros((BLOCK, BLOCK), dtype=tl.float32))


def warm_up(target: Target, folder: str) -> None:
    """Run once every step that a child runs for each candidate."""
    os.environ["TRITON_CACHE_DIR"] = f"{folder}/triton"
    stub = stub_driver.install(target)
    mlir_context.install(CUDABackend(stub.get_current_target()))
    seed_everything(0)
    shared = tensor_arena.Arena([torch.ones(256)], [torch.empty(256)], 64)
    memory = tensor_arena.attach(shared.spec, shared.fd)
    (x,) = tensor_arena.read_value(memory, shared.spec.arguments)
    values, hosts = KernelValues(), HostTensors()
    recorder = Recorder(values, hosts)
    with torch.no_grad():
        recorder.start([x])
        with recorder, HostReads(values, hosts):
            out = torch.empty_like(x)
            values.mark([out])
            _elementwise.warmup(x, out, 256, BLOCK=256, grid=(1,))
            _reductions.warmup(x, out, BLOCK=256, grid=(1,))
            _product.warmup(x, out, BLOCK=16, grid=(1,))
            torch.zeros_like(out).copy_(out.view(16, 16).t().contiguous().view(-1))
        msgspec.msgpack.encode(recorder.finish([out]))
