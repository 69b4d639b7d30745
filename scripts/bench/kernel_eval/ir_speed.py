"""The IR interpreter against Triton's own, in the same run: CPU time of a matmul and of a softmax.

Triton's interpreter can only be switched on before Triton is imported, so it runs this file in a process of its own:
`TRITON_INTERPRET=1 python -m weir.scripts.bench.kernel_eval.ir_speed`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import torch
import triton
import triton.language as tl

_SIZE, _BLOCK = 512, 64
_ROWS, _COLUMNS = 4096, 4096
_REPEATS = 3


@triton.jit  # type: ignore[untyped-decorator]
def _matmul(a, b, c, m, n, k, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    along = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, k, BLOCK):
        x = tl.load(a + rows[:, None] * k + (start + along)[None, :], mask=(start + along)[None, :] < k, other=0.0)
        y = tl.load(b + (start + along)[:, None] * n + columns[None, :], mask=(start + along)[:, None] < k, other=0.0)
        total = tl.dot(x, y, total)
    tl.store(c + rows[:, None] * n + columns[None, :], total, mask=(rows[:, None] < m) & (columns[None, :] < n))


@triton.jit  # type: ignore[untyped-decorator]
def _softmax(out, x, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    start, at = tl.program_id(0) * columns, tl.arange(0, BLOCK)
    values = tl.load(x + start + at, mask=at < columns, other=-float("inf"))
    exponents = tl.exp(values - tl.max(values, 0))
    tl.store(out + start + at, exponents / tl.sum(exponents, 0), mask=at < columns)


def _launches() -> dict[str, tuple[Any, tuple[int, int, int], list[Any], dict[str, int]]]:
    """Kernel, grid, arguments and constants of each measured launch."""
    programs = _SIZE // _BLOCK
    square = [torch.randn(_SIZE, _SIZE), torch.randn(_SIZE, _SIZE), torch.zeros(_SIZE, _SIZE)]
    rows = [torch.zeros(_ROWS, _COLUMNS), torch.randn(_ROWS, _COLUMNS)]
    return {
        "matmul": (_matmul, (programs, programs, 1), [*square, _SIZE, _SIZE, _SIZE], {"BLOCK": _BLOCK}),
        "softmax": (_softmax, (_ROWS, 1, 1), [*rows, _COLUMNS], {"BLOCK": _COLUMNS}),
    }


def ir_over_interpreter() -> dict[str, float]:
    """How many times as much CPU time Triton's interpreter takes as the IR interpreter, for each launch."""
    torch.set_num_threads(1)
    command = [sys.executable, "-m", "weir.scripts.bench.kernel_eval.ir_speed"]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    printed = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    interpreter_s: dict[str, float] = json.loads(printed)
    return {f"ir_over_interpreter_{name}": round(interpreter_s[name] / _ir_s(name), 1) for name in interpreter_s}


def _ir_s(name: str) -> float:
    """Seconds of CPU time to read and run the TTIR of a launch, the best of several."""
    from weir.kernel_eval.ir.grid.memory import Storage
    from weir.kernel_eval.ir.grid.run import Argument, PointerArgument, run
    from weir.kernel_eval.ir.text.parser import parse

    kernel, grid, arguments, constants = _launches()[name]
    text = _ttir_of(kernel, arguments, constants)
    storages: list[Storage] = []
    given: list[Argument] = []
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            given.append(PointerArgument(storage=len(storages)))
            storages.append(Storage(memory=argument.view(-1).view(torch.uint8)))
        else:
            given.append(argument)
    taken = []
    for _ in range(_REPEATS):
        started = time.thread_time()
        run(parse(text), grid, given, storages)
        taken.append(time.thread_time() - started)
    return min(taken)


def _ttir_of(kernel: Any, arguments: list[Any], constants: dict[str, int]) -> str:
    """The kernel's TTIR, for which neither a GPU nor an assembler is needed."""
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.compiler import ASTSource

    kinds = ["*fp32" if isinstance(argument, torch.Tensor) else "i32" for argument in arguments]
    signature = dict(zip(kernel.arg_names, [*kinds, *["constexpr"] * len(constants)], strict=True))
    original = CUDABackend.add_stages

    def add_stages(backend: Any, stages: Any, options: Any, language: Any = None) -> None:
        real: dict[str, Any] = {}
        original(backend, real, options, language)

        def text(module: Any, metadata: Any) -> str:
            metadata["shared"], metadata["name"] = 0, "kernel"
            return str(module)

        stages["ttir"], stages["cubin"] = real["ttir"], text

    with tempfile.TemporaryDirectory() as folder, triton.knobs.cache.scope():
        triton.knobs.cache.dir = folder
        CUDABackend.add_stages = add_stages
        try:
            source = ASTSource(kernel, signature, constants)
            return str(triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ttir"])
        finally:
            CUDABackend.add_stages = original


def _interpreter_s() -> dict[str, float]:
    """Seconds of CPU time of each launch in Triton's interpreter."""
    torch.set_num_threads(1)
    taken = {}
    for name, (kernel, grid, arguments, constants) in _launches().items():
        started = time.thread_time()
        kernel[grid](*arguments, **constants)
        taken[name] = time.thread_time() - started
    return taken


if __name__ == "__main__":
    print(json.dumps(_interpreter_s()))
