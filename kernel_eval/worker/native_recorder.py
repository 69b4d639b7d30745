"""Records launches of machine code in a worker: kernel, grid, parameters, and the addresses among them.

It adds to the record of `recorder.py`, runs in the candidate's process and is as untrusted. Which bytes of the
parameters are addresses is unknown; values that point into a tensor's memory are treated as addresses. A wrong guess
makes the replay fail, and a candidate that hides an address invalidates its own proof.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

from weir.kernel_eval.ipc.messages import BuiltNative
from weir.kernel_eval.ipc.trace import EXTENSION, NativeLaunch, Opaque, Operator, Place, Plain, Pointer
from weir.kernel_eval.toolchain.launch_hook import SET_LISTENER
from weir.kernel_eval.toolchain.ptx_parameters import Layout
from weir.kernel_eval.worker.recorder import Recorder

_EVENT = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_void_p)
)
_WORD = 8


class NativeRecorder:
    """Records the launches of one built module. Must live as long as the extension that reports to it."""

    def __init__(self, recorder: Recorder, built: BuiltNative) -> None:
        self._recorder = recorder
        self._layouts = {
            layout.kernel: (number, layout)
            for number, layouts in enumerate(built.layouts, built.first)
            for layout in layouts
        }
        self._callback = _EVENT(self._handle_event)

    def listen(self, path: str) -> None:
        """Receive the events of an extension that was loaded from a file, and has the launch hook in it."""
        getattr(ctypes.CDLL(path), SET_LISTENER)(self._callback)

    def launched(
        self, kernel: str, grid: tuple[int, ...], block: tuple[int, ...], shared_bytes: int, parameters: bytes
    ) -> NativeLaunch:
        """Record a launch that is about to happen, and return it."""
        return self._note(kernel, [*grid, *block, shared_bytes, 0], parameters)

    def _handle_event(self, kind: bytes, name: bytes, numbers: Any, parameters: Any) -> None:
        if kind == b"launch":
            known = self._layouts.get(name.decode())
            gathered = _gather(known[1], parameters) if known else b""
            self._note(name.decode(), numbers[:8], gathered)
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
        pointers = []
        for at in range(0, len(parameters) - _WORD + 1, _WORD):
            place = self._recorder.locate(struct.unpack_from("<Q", parameters, at)[0])
            if place is not None:
                pointers.append(Pointer(at, *place))
        return tuple(pointers)

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
        located = self._recorder.locate(address)
        return None if located is None else Place(located[0], "uint8", (size,), (1,), located[1])


def _gather(layout: Layout, parameters: Any) -> bytes:
    """The parameters, read from their own addresses, in the device's layout."""
    block = bytearray(layout.size_bytes)
    for index, parameter in enumerate(layout.parameters):
        block[parameter.offset : parameter.offset + parameter.size] = ctypes.string_at(
            parameters[index], parameter.size
        )
    return bytes(block)


def _opaque(module: int, layout: Layout) -> str | None:
    if module < 0:
        return "is no kernel of the code that was built for the candidate"
    return "takes a tensor map, which contains a hidden address" if layout.takes_tensor_map else None
