"""The recompiler: compiles kernels of an extracted source to IR; it has seen nothing else of the candidate.

What a recorder answers is its own word: a candidate may patch the front end there, in both recorders alike. Here the
module holds only kernels that `kernel_source.py` took from the source as text, and the front end is as it was
installed.
"""

from __future__ import annotations

import functools
import socket
import sys
import types
from typing import Any

import triton.language as tl
from triton.compiler import ASTSource, compiler

from weir.kernel_eval.ipc.framing import receive, send
from weir.kernel_eval.ipc.messages import Recompile, Recompiled, Specialized
from weir.kernel_eval.ipc.trace import Argument, Many, Named, Plain
from weir.kernel_eval.recording.launch_capture import stop_at_ttir
from weir.kernel_eval.toolchain import scratch_folder, stub_driver
from weir.kernel_eval.toolchain.targets import named
from weir.kernel_eval.worker.candidate import load_candidate
from weir.kernel_eval.worker.named_kernel import kernel_of

_FAILURE_CHARS = 2000
_DTYPES = {str(value): value for value in vars(tl).values() if isinstance(value, tl.dtype)}


def run(channel: socket.socket, folder: str) -> None:
    """Serve one request, in a contained and freshly forked process."""
    scratch_folder.enter(folder)
    message, _ = receive(channel, Recompile)
    recompiled = recompile(message, folder)
    sys.stdout.flush()
    sys.stderr.flush()
    send(channel, recompiled)


def recompile(message: Recompile, folder: str) -> Recompiled:
    """The IR of each kernel, up to the first that does not compile."""
    stub = stub_driver.install(named(message.target))
    stop_at_ttir()
    texts: list[str] = []
    try:
        module = load_candidate(message.source, folder)
        for kernel, options in zip(message.kernels, message.options, strict=True):
            source = _source(kernel, module)
            compiled = compiler.compile(source, target=stub.get_current_target(), options=dict(options))
            texts.append(compiled.asm["cubin"].decode())
    except Exception as error:  # any error of the front end is about this source
        return Recompiled(tuple(texts), f"{type(error).__name__}: {error}"[-_FAILURE_CHARS:])
    return Recompiled(tuple(texts))


def _source(kernel: Specialized, module: types.ModuleType) -> ASTSource:
    value = functools.partial(_value, module=module)
    constants = {path: value(constant) for path, constant in kernel.constants}
    hints = {path: [[name, number] for name, number in hint] for path, hint in kernel.hints}
    return ASTSource(kernel_of(module, kernel.kernel), dict(kernel.signature), constants, hints)


def _value(constant: Argument, module: types.ModuleType) -> Any:
    """The value of a constant. Raises ValueError for one that no front end takes."""
    if isinstance(constant, Plain):
        return constant.value
    if isinstance(constant, Named) and constant.kind == "triton":
        return _DTYPES[constant.name]
    if isinstance(constant, Named) and constant.kind == "kernel":
        return kernel_of(module, constant.name)
    if isinstance(constant, Many):
        items = [_value(item, module) for item in constant.items]
        return items if constant.kind == "list" else tuple(items)
    raise ValueError(f"a constant of the kind {type(constant).__name__}")
