"""Replaces launches by compilations to Triton's IR: no kernel runs, each launch is recorded with its IR.

Triton's own front end compiles a kernel for the arguments, constants and options of its launch, as on a device, and the
pipeline ends with TTIR, the first stage. Constants are part of the IR and dropped arguments are not in the record: a
launch's arguments are those of the IR's function, in order. It runs in the candidate's process and is as untrusted: IR
of other kernels than the source defines is judged as what it is, and built as what it is.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction, TensorWrapper

from weir.kernel_eval.ipc.messages import KernelIr, Load, Specialized
from weir.kernel_eval.ipc.trace import Argument, Descriptor, Launch, Opaque, Plain, places
from weir.kernel_eval.toolchain import launch_options, stub_driver
from weir.kernel_eval.toolchain.targets import TARGETS
from weir.kernel_eval.worker import autotune
from weir.kernel_eval.worker.candidate import kernel_id
from weir.kernel_eval.worker.candidate_process import KernelRefused
from weir.kernel_eval.worker.host_tensors import HostTensors
from weir.kernel_eval.worker.kernel_values import KernelValues, NeedsKernelResult
from weir.kernel_eval.worker.recorder import Recorder

_NEWEST = "sm_100"
_MESSAGE_CHARS = 4000


def stop_at_ttir() -> None:
    """Patch Triton in this process: compilations end with TTIR, as text without locations."""
    add_stages = CUDABackend.add_stages

    def stages_up_to_ttir(backend: Any, stages: dict[str, Any], *rest: Any) -> None:
        whole: dict[str, Any] = {}
        add_stages(backend, whole, *rest)
        stages["ttir"] = whole["ttir"]
        stages["cubin"] = _as_text

    CUDABackend.add_stages = stages_up_to_ttir


def _as_text(module: Any, metadata: dict[str, Any]) -> bytes:
    metadata |= {"name": module.get_entry_func_name(), "shared": 0, "tmem_size": 0}
    return str(module.str_nodebug()).encode()


class LaunchCapture:
    """The IR of the launches of a call, in the order of their first launch."""

    def __init__(
        self, recorder: Recorder, values: KernelValues, hosts: HostTensors, stub: stub_driver.StubDriver
    ) -> None:
        self._recorder = recorder
        self._values = values
        self._hosts = hosts
        self._stub = stub
        self._numbers: dict[Any, int] = {}
        self._irs: list[KernelIr] = []
        self._made_of: list[Specialized | None] = []

    def start(self) -> None:
        """Begin to number the IR of a call."""
        self._numbers, self._irs, self._made_of = {}, [], []

    @property
    def irs(self) -> tuple[KernelIr, ...]:
        """The IR of each kernel that the call launched, as its launches number them."""
        return tuple(self._irs)

    @property
    def made_of(self) -> tuple[Specialized | None, ...]:
        """What each of them was made of."""
        return tuple(self._made_of)

    def install(self) -> None:
        """Replace every launch in this process."""
        run = JITFunction.run

        def capture(kernel: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
            compiled = self._compiled(run, kernel, args, kwargs)
            if not warmup:
                self._recorder.note(self._launch(kernel, compiled, grid, args, kwargs))
            return compiled

        JITFunction.run = capture
        autotune.install()

    def take_configurations(self, load: Load, sample: int | None = None) -> None:
        """Take a configuration of autotuned kernels, each of them, or some, as the judge asks."""
        several = load.all_configs or sample is not None
        autotune.install(load.skipped_configs, self._recorder if several else None, sample)

    def _compiled(self, run: Callable[..., Any], kernel: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        try:
            return run(kernel, *args, grid=None, warmup=True, **kwargs)
        except NeedsKernelResult:
            raise
        except OutOfResources as error:
            raise KernelRefused("shared_memory", kernel_id(kernel.fn), str(error)) from None
        except Exception as error:  # any error of the compiler is about this kernel
            text = _message(error)
            newer = self._compiles_elsewhere(lambda: run(kernel, *args, grid=None, warmup=True, **kwargs))
            name = kernel_id(kernel.fn)
            raise KernelRefused("arch" if newer else "compiler", name, text[-_MESSAGE_CHARS:]) from None

    def _launch(self, kernel: Any, compiled: Any, grid: Any, args: Any, kwargs: dict[str, Any]) -> Launch:
        device = self._stub.get_current_device()
        bound, _, _ = kernel.device_caches[device][4](*args, **kwargs)
        sizes = grid(bound) if callable(grid) else grid
        sizes = tuple(map(operator.index, sizes))  # as Triton's launcher takes them: a float or a lone number is none
        signature = compiled.src.signature
        flat = []
        for name, value in bound.items():
            leaves = list(_leaves(signature[name], value))
            for _, leaf in leaves:
                for tensor in _tensors(leaf):
                    self._hosts.check_launch(kernel.fn.__name__, name, tensor)
            flat += leaves
        written = (tensor for _, value in flat for tensor in _tensors(value))
        self._values.mark(tensor for tensor in written if not self._recorder.is_given(tensor))
        given = tuple(itertools.chain.from_iterable(self._describe(kind, value) for kind, value in flat))
        metadata = compiled.metadata._asdict()
        options = {name: metadata[name] for name in launch_options.NAMES if _is_plain(metadata.get(name))}
        ir = KernelIr(kernel_id(kernel.fn), compiled.asm["cubin"].decode(), options)
        number = self._numbers.setdefault((ir.kernel, ir.text, *options.values()), len(self._irs))
        if number == len(self._irs):
            self._irs.append(ir)
            self._made_of.append(self._specialized(kernel.fn, compiled.src))
        function = kernel.fn
        return Launch(function.__name__, function.__code__.co_firstlineno, sizes, {}, {}, number, given)

    def _specialized(self, function: Any, source: Any) -> Specialized | None:
        """What a kernel's IR was made of; None if it has parts of types that other processes cannot be given."""
        signature = {name: kind for name, kind in source.signature.items() if isinstance(kind, str)}
        constants = tuple((path, self._recorder.describe(value)) for path, value in source.constants.items())
        if len(signature) < len(source.signature) or any(isinstance(value, Opaque) for _, value in constants):
            return None
        hints = tuple((path, tuple((name, number) for name, number in of)) for path, of in source.attrs.items())
        return Specialized(function.__name__, function.__code__.co_firstlineno, signature, constants, hints)

    def _describe(self, kind: str, value: Any) -> Iterator[Argument]:
        """The arguments of the IR's function that one argument of the launch becomes."""
        described = self._recorder.describe(value.base if isinstance(value, TensorWrapper) else value)
        yield described
        if isinstance(described, Descriptor):
            yield from (Plain(number) for number in (*described.shape, *described.stride))
        elif kind.startswith("*") and not places([described]):
            yield Opaque(type(value).__name__)

    def _compiles_elsewhere(self, attempt: Callable[[], Any]) -> bool:
        """Whether the newest architecture accepts a kernel that the target refuses."""
        target = self._stub.target
        self._stub.target = TARGETS[_NEWEST]
        try:
            attempt()
        except Exception:
            return False
        finally:
            self._stub.target = target
        return target.name != _NEWEST


def _message(error: BaseException) -> str:
    """What the compiler says; its last line is the reason, which may lie in a function that the kernel calls."""
    if not isinstance(error, CompilationError):
        return f"{type(error).__name__}: {error}"
    inner: BaseException = error
    while inner.__cause__ is not None:
        inner = inner.__cause__
    reason = getattr(inner, "error_message", None) or (str(inner) if inner is not error else "")
    text = str(error)
    return text if text.endswith(reason) else f"{text}\n{reason}"


def _leaves(kind: Any, value: Any) -> Iterator[tuple[str, Any]]:
    """The types and values that an argument passes to the IR's function; constants pass none."""
    if isinstance(kind, tuple):
        for inner, item in zip(kind, value, strict=True):
            yield from _leaves(inner, item)
    elif kind != "constexpr":
        yield kind, value


def _tensors(value: Any) -> list[torch.Tensor]:
    base = getattr(value, "base", value)
    return [base] if isinstance(base, torch.Tensor) else []


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, int | float | bool | str)
