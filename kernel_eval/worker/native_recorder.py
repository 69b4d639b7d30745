"""Writes down, in a worker, the launches of machine code: kernel, grid, parameters, and the addresses found in them.

As `recorder.py`, whose record it adds to, it runs in the candidate's process and is trusted no further. Which bytes of
the parameters are addresses is not known; those are taken for one that point into a tensor's memory. A wrong guess
makes the launch fail elsewhere, and a candidate that hides an address spoils its own proof.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

from weir.kernel_eval.ipc.messages import BuiltNative
from weir.kernel_eval.ipc.trace import EXTENSION, NativeLaunch, Opaque, Operator, Place, Plain, Pointer
from weir.kernel_eval.toolchain.launch_hook import TELL
from weir.kernel_eval.toolchain.ptx_parameters import Layout
from weir.kernel_eval.worker.recorder import Recorder

_EVENT = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_void_p)
)
_WORD = 8


class NativeRecorder:
    """What was built at once, for one candidate. Lives as long as an extension that tells it of launches."""

    def __init__(self, recorder: Recorder, built: BuiltNative) -> None:
        self._recorder = recorder
        self._layouts = {
            layout.kernel: (number, layout)
            for number, layouts in enumerate(built.layouts, built.first)
            for layout in layouts
        }
        self._heard = _EVENT(self._hear)

    def listen(self, path: str) -> None:
        """To an extension that was loaded from a file, and has `native_hook.py` in it."""
        getattr(ctypes.CDLL(path), TELL)(self._heard)

    def launched(
        self, kernel: str, grid: tuple[int, ...], block: tuple[int, ...], shared_bytes: int, parameters: bytes
    ) -> NativeLaunch:
        """One launch that is about to happen."""
        return self._note(kernel, [*grid, *block, shared_bytes, 0], parameters)

    def _hear(self, kind: bytes, name: bytes, numbers: Any, parameters: Any) -> None:
        if kind == b"launch":
            found = self._layouts.get(name.decode())
            given = _gather(found[1], parameters) if found else b""
            self._note(name.decode(), numbers[:8], given)
        elif kind == b"set":
            self._set(*numbers[:3])
        elif kind == b"copy":
            self._copy(*numbers[:3])
        else:
            self._unknown(name.decode())

    def _note(self, kernel: str, numbers: list[int], parameters: bytes) -> NativeLaunch:
        module, layout = self._layouts.get(kernel, (-1, Layout(kernel, ())))
        launch = NativeLaunch(
            module,
            kernel,
            (numbers[0], numbers[1], numbers[2]),
            (numbers[3], numbers[4], numbers[5]),
            numbers[6],
            parameters,
            tuple(parameter.offset for parameter in layout.parameters),
            self._pointers(parameters),
            bool(numbers[7]),
            _opaque(module, layout),
        )
        self._recorder.note(launch)
        return launch

    def _pointers(self, parameters: bytes) -> tuple[Pointer, ...]:
        found = []
        for at in range(0, len(parameters) - _WORD + 1, _WORD):
            place = self._recorder.locate(struct.unpack_from("<Q", parameters, at)[0])
            if place is not None:
                found.append(Pointer(at, *place))
        return tuple(found)

    def _set(self, address: int, value: int, size: int) -> None:
        place = self._place(address, size)
        if place is not None:
            self._recorder.note(Operator("aten.fill_.Scalar", (place, Plain(value & 0xFF)), {}, (place,)))

    def _copy(self, to: int, source: int, size: int) -> None:
        place, read = self._place(to, size), self._place(source, size)
        if place is not None and read is not None:
            self._recorder.note(Operator("aten.copy_.default", (place, read), {}, (place,)))
        elif place is not None:
            self._unknown("copies memory of the host, or of cudaMalloc, to a tensor (cudaMemcpy)")

    def _unknown(self, what: str) -> None:
        self._recorder.note(Operator(EXTENSION, (Opaque(what),), {}, ()))

    def _place(self, address: int, size: int) -> Place | None:
        found = self._recorder.locate(address)
        return None if found is None else Place(found[0], "uint8", (size,), (1,), found[1])


def _gather(layout: Layout, parameters: Any) -> bytes:
    """The parameters, each from its own address, as they lie for the device."""
    block = bytearray(layout.size_bytes)
    for index, parameter in enumerate(layout.parameters):
        block[parameter.offset : parameter.offset + parameter.size] = ctypes.string_at(
            parameters[index], parameter.size
        )
    return bytes(block)


def _opaque(module: int, layout: Layout) -> str | None:
    if module < 0:
        return "is no kernel of what was built for the candidate"
    return "takes a tensor map, in which an address is hidden" if layout.takes_tensor_map else None
