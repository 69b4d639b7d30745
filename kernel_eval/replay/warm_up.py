"""Warms up the zygote of players: reads and runs a small kernel's IR once, since torch initialises much lazily."""

from __future__ import annotations

import torch

from weir.kernel_eval.ipc import tensor_arena
from weir.kernel_eval.ipc.messages import KernelIr
from weir.kernel_eval.ipc.trace import Launch, Operator, Place, Plain, Storage, Trace
from weir.kernel_eval.replay.ir_launches import IrLaunches
from weir.kernel_eval.replay.player import play

_TEXT = """module {
  tt.func public @warm(%x_ptr: !tt.ptr<f32>, %out_ptr: !tt.ptr<f32>, %n: i32) attributes {noinline = false} {
    %cst = arith.constant dense<0.000000e+00> : tensor<64xf32>
    %c64_i32 = arith.constant 64 : i32
    %0 = tt.get_program_id x : i32
    %1 = arith.muli %0, %c64_i32 : i32
    %2 = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %3 = tt.splat %1 : i32 -> tensor<64xi32>
    %4 = arith.addi %3, %2 : tensor<64xi32>
    %5 = tt.splat %n : i32 -> tensor<64xi32>
    %6 = arith.cmpi slt, %4, %5 : tensor<64xi32>
    %7 = tt.splat %x_ptr : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %8 = tt.addptr %7, %4 : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
    %9 = tt.load %8, %6 : tensor<64x!tt.ptr<f32>>
    %10 = math.exp %9 : tensor<64xf32>
    %11 = "tt.reduce"(%10) <{axis = 0 : i32}> ({
    ^bb0(%arg3: f32, %arg4: f32):
      %15 = arith.addf %arg3, %arg4 : f32
      tt.reduce.return %15 : f32
    }) : (tensor<64xf32>) -> f32
    %12 = tt.splat %11 : f32 -> tensor<64xf32>
    %13 = arith.divf %10, %12 : tensor<64xf32>
    %14 = arith.maxnumf %13, %cst : tensor<64xf32>
    %15 = tt.splat %out_ptr : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %16 = tt.addptr %15, %4 : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
    tt.store %16, %14, %6 : tensor<64x!tt.ptr<f32>>
    tt.return
  }
}
"""


def warm_up() -> None:
    """Play a record with one launch and one operator."""
    x = Place(0, "float32", (200,), (1,), 0)
    out = Place(1, "float32", (200,), (1,), 0)
    storages = (Storage("input", 0, 800), Storage("fresh", 0, 800))
    launch = Launch("warm", 1, (4,), {}, {}, 0, (x, out, Plain(200)))
    trace = Trace(storages, (Operator("aten.copy_.default", (out, x), {}, (out,)), launch), (out,))
    launches = IrLaunches([KernelIr("warm:1", _TEXT, {})], 1 << 30, 60.0)
    arena = tensor_arena.Arena([[torch.ones(200)], []], [torch.empty(200)], 64)
    memory = tensor_arena.attach(arena.spec, arena.fd)
    with torch.no_grad():
        for exact in (True, False):
            launches.begin(exact_dots=exact, marks=True)
            play(trace, launches, memory, arena.spec, marks=True)
