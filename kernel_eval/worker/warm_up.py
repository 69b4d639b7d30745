"""Warms up zygotes, so that no worker pays for the first use of kernels, compiler, seeds, arenas and guards."""

from __future__ import annotations

import msgspec
import torch
import triton
import triton.language as tl

from weir.kernel_eval.ipc import tensor_arena
from weir.kernel_eval.tasks.seeds import seed_everything
from weir.kernel_eval.worker.guard_zones import GuardedAllocations
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


def warm_up() -> None:
    """Run once every step that a worker runs for each candidate."""
    seed_everything(0)
    shared = tensor_arena.Arena([torch.ones(256)], [torch.empty(256)], 64)
    memory = tensor_arena.attach(shared.spec, shared.fd)
    (x,) = tensor_arena.read_value(memory, shared.spec.arguments)
    allocations, recorder = GuardedAllocations(64), Recorder()
    with torch.no_grad():
        for _ in range(2):
            recorder.start([x])
            with recorder, allocations:
                out = torch.empty_like(x)
                _elementwise[(1,)](x, out, 256, BLOCK=256)
                _reductions[(1,)](x, out, BLOCK=256)
                _product[(1,)](x, out, BLOCK=16)
            msgspec.msgpack.encode(recorder.finish([out]))
            tensor_arena.flat_view(memory, shared.spec.outputs[0]).copy_(out)
            allocations.take_overrun()


def compile_all() -> None:
    """Compile the same kernels, in a process in which Triton compiles."""
    seed_everything(0)
    x = torch.ones(256)
    _elementwise.warmup(x, x, 256, BLOCK=256, grid=(1,))
    _reductions.warmup(x, x, BLOCK=256, grid=(1,))
    _product.warmup(x, x, BLOCK=16, grid=(1,))
