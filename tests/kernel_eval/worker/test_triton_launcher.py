"""The launcher for Triton 3.6 gives the driver the arguments, and the attributes, that Triton's own gives."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from weir.kernel_eval.gpu import cuda_driver
from weir.kernel_eval.worker import triton_launcher
from weir.kernel_eval.worker.triton_launcher import Launcher, parameter_types

TRITON_36 = os.environ.get("WEIR_TEST_TRITON", "")


class Driver:
    """Stands in the place of the driver; keeps what a launch got."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.parameters: list[bytes] = []
        self.config: Any = None
        self.attributes: list[tuple[int, list[int]]] = []
        self.others: list[str] = []

    def call(self, function: str, *arguments: Any) -> None:
        if function == "cuPointerGetAttribute":
            raise cuda_driver.CudaDriverError(function, 1)
        if function != "cuLaunchKernelEx":
            self.others.append(function)
            return
        self.config = arguments[0]._obj
        places = arguments[2]
        assert len(places) == len(self.sizes) + 2, "two scratch pointers are last"
        self.parameters = [
            ctypes.string_at(place, size) for place, size in zip(places, [*self.sizes, 8, 8], strict=True)
        ]
        count = self.config.num_attributes
        self.attributes = [(one.id, list(one.value[:3])) for one in self.config.attributes[:count]]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(cuda_driver, "call", made.call)
    return made


def launch(
    launcher: Launcher, *arguments: Any, num_ctas: int = 1, cooperative: bool = False, serial: bool = False
) -> None:
    launcher(5, 6, 7, 11, 12, cooperative, serial, 13, None, (4, num_ctas, 640), None, None, None, *arguments)


def test_numbers_have_the_bytes_of_their_types(driver: Driver) -> None:
    given = {
        "*fp32": (0x1234567890, "<Q", 0x1234567890),
        "i1": (True, "<b", 1),
        "i32": (-5, "<i", -5),
        "i64": (1 << 40, "<q", 1 << 40),
        "u64": ((1 << 64) - 1, "<Q", (1 << 64) - 1),
        "fp16": (1.5, "<e", 1.5),
        "fp32": (1e300, "<f", float("inf")),
        "fp64": (0.1, "<d", 0.1),
    }
    driver.sizes = [struct.calcsize(form) for _, form, _ in given.values()]
    launch(Launcher(list(given)), *(value for value, _, _ in given.values()))
    for raw, (_, form, expected) in zip(driver.parameters, given.values(), strict=False):
        assert struct.unpack(form, raw) == (expected,)
    assert [struct.unpack("<Q", raw)[0] for raw in driver.parameters[-2:]] == [13, 0]


def test_numbers_of_numpy_are_taken_as_python_s_are(driver: Driver) -> None:
    driver.sizes = [4, 4, 2]
    launcher = Launcher(["i32", "fp32", "fp16"])
    grid: list[Any] = [np.int64(2), np.int32(1), 1]
    metadata = (4, 1, 0)
    values = (np.int64(7), np.float32(0.5), np.float64(2))
    launcher(*grid, 11, 12, False, False, None, None, metadata, None, None, None, *values)
    assert list(driver.config.grid) == [2, 1, 1]
    assert driver.parameters[:3] == [struct.pack("<i", 7), struct.pack("<f", 0.5), struct.pack("<e", 2)]


def test_bfloat16_is_cut_off_and_tuples_and_constants_are_taken_apart(driver: Driver) -> None:
    driver.sizes = [2, 4, 4]
    types = ["bf16", "constexpr", ("i32", ("constexpr", "i32"))]
    launch(Launcher(types), 1.999999, 64, (3, (None, 4)))
    assert driver.parameters[:3] == [bytes([0xFF, 0x3F]), struct.pack("<i", 3), struct.pack("<i", 4)]


def test_the_grid_and_what_a_kernel_asks_for_are_passed_on(driver: Driver) -> None:
    launch(Launcher([]), num_ctas=16, cooperative=True, serial=True)
    config = driver.config
    assert (list(config.grid), list(config.block)) == ([80, 6, 7], [128, 1, 1])
    assert (config.shared_bytes, config.stream) == (640, 11)
    assert driver.attributes == [(6, [1, 0, 0]), (2, [1, 0, 0]), (4, [16, 1, 1]), (5, [1, 0, 0])]
    assert driver.others == ["cuFuncSetAttribute"], "clusters of 16 are asked for"


def test_hooks_are_called_and_an_empty_grid_launches_nothing(driver: Driver) -> None:
    called: list[Any] = []
    Launcher([])(0, 1, 1, 11, 12, False, False, None, None, (4, 1, 0), "about", called.append, called.append)
    assert called == ["about", "about"] and driver.config is None


def test_a_tensor_of_a_cpu_is_refused(driver: Driver) -> None:
    del driver
    with pytest.raises(ValueError, match=r"Pointer argument \(at 0\) cannot be accessed"):
        launch(Launcher(["*fp32"]), torch.ones(3))


def test_tensor_descriptors_become_what_triton_passes_in_their_place() -> None:
    signature = ["tensordesc<fp16[32, 64]>", "i32", "tensordesc<fp32[8]>"]
    maps = list(parameter_types(signature, [{"swizzle": 1}, None]))
    assert maps == [
        *["nvTmaDesc", "i32", "i32", "i64", "i64"],
        "i32",
        *["*fp32", "i64", "i64", "i1", "i32", "i64"],
    ]
    without = list(parameter_types(signature[:1], None))
    assert without == ["*fp16", "i64", "i64", "i64", "i64", "i1", "i32", "i32", "i64", "i64"]


INSTALLED = """
from weir.kernel_eval.worker import triton_launcher
from triton.backends.nvidia import driver
own = driver.compile_module_from_src
triton_launcher.install()
made = driver.make_launcher({}, {0: "*fp32", 1: "i32"}, None)
print(type(made).__name__, driver.compile_module_from_src(src=made, name="__triton_launcher").launch is made)
"""


@pytest.mark.skipif(not TRITON_36, reason="needs Triton 3.6 (WEIR_TEST_TRITON names its folder)")
def test_triton_36_takes_it_in_place_of_a_compiled_one() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([TRITON_36, *sys.path[1:]])}
    run = subprocess.run([sys.executable, "-c", INSTALLED], capture_output=True, text=True, env=environment)
    assert run.stdout == "Launcher True\n", run.stderr


def test_later_releases_keep_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.backends.nvidia import driver as of_triton

    monkeypatch.delattr(of_triton, "make_launcher", raising=False)
    before = of_triton.compile_module_from_src
    triton_launcher.install()
    assert of_triton.compile_module_from_src is before
