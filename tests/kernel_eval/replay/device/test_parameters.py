"""What the driver is given for a launch of a record: each parameter's bytes, as the code declares them."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest
import torch

from weir.kernel_eval.gpu import cuda_driver
from weir.kernel_eval.ipc.messages import DeviceKernel, LaunchForm, TensorMap
from weir.kernel_eval.ipc.trace import Argument, Descriptor, Launch, Place, Plain
from weir.kernel_eval.replay.device import kernels
from weir.kernel_eval.replay.device.kernels import DeviceKernels
from weir.kernel_eval.replay.device.parameters import packed
from weir.kernel_eval.replay.device.tuning import Tuning, usable

STORAGES = [torch.zeros(512, dtype=torch.uint8), torch.zeros(512, dtype=torch.uint8)]
ADDRESSES = [storage.data_ptr() for storage in STORAGES]
X, OUT = Place(0, "float32", (16,), (1,), 4), Place(1, "float32", (16,), (1,), 0)
TILES = Descriptor(Place(1, "float16", (8, 16), (16, 1), 8), (8, 16), (16, 1), (4, 8), "nan")
NUMBERS = [Plain(number) for number in (8, 16, 16, 1)]
DESCRIBED = ["i32", "i32", "i64", "i64"]
MAP = TensorMap(3, 2, 6, (4, 8))


def kernel(types: list[str], sizes: list[int], maps: tuple[TensorMap, ...] = (), **more: Any) -> DeviceKernel:
    usual = {"num_warps": 4, "num_ctas": 1, "shared_bytes": 0, "scratch_bytes": 0, "scratch_align": 1}
    flags = {"cooperative": False, "serial": False}
    return DeviceKernel(
        LaunchForm(**{**usual, **flags, **more}, entry="k", types=tuple(types), maps=maps), tuple(sizes), b"code"
    )


def launch(*arguments: Argument, ir: int = 0, alternatives: tuple[Launch, ...] = ()) -> Launch:
    return Launch("k", 1, (5, 6), {}, {}, ir, arguments, alternatives)


def test_pointers_numbers_and_scratch_memory_are_laid_out_as_triton_lays_them_out() -> None:
    types = ["*fp32", "i32", "i1", "i64", "fp32", "f64", "fp16", "bf16"]
    given = [X, Plain(-2), Plain(True), Plain(1 << 40), Plain(1.5), Plain(0.1), Plain(0.1), Plain(1.9999)]
    got = packed(kernel(types, [8, 4, 1, 8, 4, 8, 2, 2, 8, 8]), launch(*given), STORAGES, (77, 0))
    assert got[:6] == [
        struct.pack("<Q", ADDRESSES[0] + 16),
        struct.pack("<i", -2),
        b"\1",
        struct.pack("<q", 1 << 40),
        struct.pack("<f", 1.5),
        struct.pack("<d", 0.1),
    ]
    assert got[6:] == [struct.pack("<e", 0.1), struct.pack("<f", 1.9999)[2:], struct.pack("<Q", 77), bytes(8)]


@pytest.mark.parametrize("num_flags", [1, 2])
def test_a_descriptor_without_tensor_maps_is_a_pointer_with_its_form_twice(num_flags: int) -> None:
    """One flag in Triton 3.6, for the padding, and a second one in 3.7."""
    types = ["*f16", *["i64"] * 4, *["i1"] * num_flags, *DESCRIBED]
    sizes = [8, *[8] * 4, *[1] * num_flags, 4, 4, 8, 8, 8, 8]
    got = packed(kernel(types, sizes), launch(TILES, *NUMBERS), STORAGES, (0, 0))
    assert got[0] == struct.pack("<Q", ADDRESSES[1] + 16)
    assert [int.from_bytes(each, "little") for each in got[1:5]] == [8, 16, 16, 1]
    assert got[5] == b"\1"
    assert [int.from_bytes(each, "little") for each in got[5 + num_flags : 9 + num_flags]] == [8, 16, 16, 1]
    assert len(got) == len(sizes)


def test_a_descriptor_with_a_tensor_map_asks_the_driver_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def call(function: str, *arguments: Any) -> None:
        if function == "cuTensorMapEncodeTiled":
            asked.extend(list(a) if isinstance(a, ctypes.Array) else a.value for a in arguments)
            ctypes.memset(arguments[0], 0xFF, 128)
        else:
            arguments[0]._obj.value = 13000

    monkeypatch.setattr(cuda_driver, "call", call)
    types = ["!tt.tensordesc<tensor<4x8xf16>>", *DESCRIBED]
    got = packed(kernel(types, [128, 4, 4, 8, 8, 8, 8], (MAP,)), launch(TILES, *NUMBERS), STORAGES, (0, 0))
    assert asked[0] % 64 == 0
    assert asked[1:] == [6, 2, ADDRESSES[1] + 16, [16, 8], [32, 256], [8, 4], [1, 1], 0, 3, 2, 1]
    assert (len(got[0]), got[0][10], set(got[0][:10])) == (128, 0xDF, {0xFF}), "a map of little memory is mended"
    assert struct.unpack("<i", got[1]) == (8,)


@pytest.mark.parametrize(
    ("types", "sizes", "given", "says"),
    [
        (["*fp32", "i32"], [8, 4, 8, 8], [X], "1 arguments too few"),
        (["*fp32"], [8, 8, 8], [X, Plain(1)], "given Plain for nothing"),
        (["i32"], [4, 8, 8], [X], "given Place for i32"),
        (["*fp32"], [8, 8, 8, 8], [X], "takes 4 parameters, and is given 1"),
        (["!tt.tensordesc<tensor<4x8xf16>>"], [128, 8, 8], [TILES], "given a tensor descriptor"),
        (["i32"], [4, 8, 8], [Plain(0.5)], "type i32 is given 0.5"),
    ],
)
def test_arguments_that_the_code_does_not_take_are_named(
    types: list[str], sizes: list[int], given: list[Argument], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        packed(kernel(types, sizes), launch(*given), STORAGES, (0, 0))


def test_the_fastest_way_that_touches_nothing_else_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    built = DeviceKernels([kernel([], []), None, *[kernel([], [])] * 3])
    elsewhere, refused, slow, fast = launch(OUT, ir=4), launch(X, ir=1), launch(X, ir=2), launch(X, ir=3)
    tuned = launch(X, alternatives=(elsewhere, refused, slow, fast))
    assert [way.ir for way in usable(tuned, built)] == [0, 2, 3]
    times = {0: 3.0, 2: 2.0, 3: 1.0}
    monkeypatch.setattr(Tuning, "_time_us", lambda self, way, storages: times.pop(way.ir))
    tuning = Tuning(built)
    assert tuning.chosen(tuned, STORAGES) is fast
    assert tuning.chosen(tuned, STORAGES) is fast, "each is timed once"
    assert tuning.chosen(launch(X, ir=1, alternatives=(slow,)), STORAGES) is slow, "what was not built is not taken"


def test_a_launch_gives_the_driver_what_the_compiler_said(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    given: list[bytes] = []

    def call(function: str, *arguments: Any) -> None:
        asked.append((function, arguments))
        if function in ("cuModuleLoadData", "cuModuleGetFunction"):
            arguments[0]._obj.value = 99
        if function == "cuLaunchKernelEx":
            given.extend(ctypes.string_at(address, 8) for address in arguments[2])

    monkeypatch.setattr(cuda_driver, "call", call)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: type("Stream", (), {"cuda_stream": 7}))
    monkeypatch.setattr(kernels, "_DEVICE", "cpu")
    of_clusters = kernel(["*fp32"], [8, 8, 8], num_ctas=2, shared_bytes=60_000, scratch_bytes=128, scratch_align=128)
    DeviceKernels([of_clusters]).launch(launch(X), STORAGES)
    names = [function for function, _ in asked]
    assert names == [
        "cuModuleLoadData",
        "cuModuleGetFunction",
        "cuFuncSetCacheConfig",
        "cuFuncSetAttribute",
        "cuLaunchKernelEx",
    ]
    config = asked[-1][1][0]._obj
    assert (list(config.grid), list(config.block)) == ([10, 6, 1], [128, 1, 1])
    assert (config.shared_bytes, config.stream, config.num_attributes) == (60_000, 7, 2)
    address, scratch, nothing = (struct.unpack("<Q", each)[0] for each in given)
    assert (address, nothing) == (ADDRESSES[0] + 16, 0)
    assert scratch and scratch % 128 == 0
