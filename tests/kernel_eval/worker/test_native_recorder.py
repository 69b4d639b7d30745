"""CUDA C++ extensions: they are built, and their launches are recorded and can be repeated with other addresses.

Everything up to the launch itself needs no GPU: the extension is loaded, called, and reports its launches, before the
runtime finds no device.
"""

from __future__ import annotations

import ctypes
import struct
import subprocess
from pathlib import Path

import msgspec
import pytest
import torch

from weir.kernel_eval.ipc.messages import BuiltNative
from weir.kernel_eval.ipc.trace import NativeLaunch, Operator, Place, Plain, Pointer, Storage, Trace
from weir.kernel_eval.judge.checks.native_report import kernels_in
from weir.kernel_eval.judge.source import provenance
from weir.kernel_eval.replay.device.gpu_modules import parameters_at
from weir.kernel_eval.toolchain import native_compilers
from weir.kernel_eval.toolchain.launch_hook import SOURCE
from weir.kernel_eval.toolchain.native_compilers import HOOK, Toolchain
from weir.kernel_eval.toolchain.native_source import NativeModule, NativeSource
from weir.kernel_eval.toolchain.ptx_parameters import Parameter, layouts_in
from weir.kernel_eval.worker.extension_calls import ExtensionCalls
from weir.kernel_eval.worker.native_recorder import NativeRecorder
from weir.kernel_eval.worker.recorder import Recorder
from weir.kernel_eval.worker.remote_compiler import layout_of, packed

toolchain = native_compilers.find("cuda")
needs_nvcc = pytest.mark.skipif(isinstance(toolchain, str), reason=f"cuda: {toolchain}")
NONE: frozenset[str] = frozenset()
CODE = """
struct Shape { float scale; double bias; char kind[3]; };
namespace {
template <typename T> __global__ void scale(const T* x, T* out, int n, Shape shape) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] * shape.scale;
}
}
extern "C" __global__ void add(float* x, long long n, float by, double more) { if (n > 1) x[0] += by + more; }
__constant__ float table[4];
extern "C" void call(float* x, float* out, int n) {
    cudaMemsetAsync(out, 0x41, 4 * n, 0);
    cudaMemcpyAsync(out, x, 4, cudaMemcpyDeviceToDevice, 0);
    scale<float><<<dim3((n + 255) / 256, 2), 256, 64>>>(x + 1, out, n, Shape{2, 1, {0}});
}
extern "C" void fill_table(float* from) { cudaMemcpyToSymbol(table, from, 16); }
extern "C" void copy_from_host(float* out) { float host[4]; cudaMemcpy(out, host, 16, cudaMemcpyHostToDevice); }
extern "C" void with_clusters(float* x) {
    cudaLaunchConfig_t config = {dim3(2), dim3(32)};
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    config.attrs = &cluster;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, add, x, 7LL, 1.0f, 1.0);
}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the code as a judge builds it, without bindings, which need torch's headers."""
    assert isinstance(toolchain, Toolchain)
    folder = tmp_path_factory.mktemp("native")
    module = NativeModule("native", (NativeSource("native", CODE),), host_text="")
    (folder / "piece0.cu").write_text(module.pieces[0].complete_text)
    (folder / HOOK).write_text(SOURCE)
    (folder / native_compilers.HOST).write_text("")
    command = toolchain.build_command(module, "sm_90")
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert len(kernels_in(ended.stdout + ended.stderr)) == 2
    return folder


class Heard:
    """The loaded extension, and the events that it reports."""

    def __init__(self, folder: Path) -> None:
        assert isinstance(toolchain, Toolchain)
        (runtime,) = Path(toolchain.home, "lib64").glob("libcudart.so.*[0-9]")
        ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
        path = str(folder / "extension.so")
        self.library = ctypes.CDLL(path)
        self.recorder = Recorder()
        layouts = tuple(layouts_in((folder / "piece0.ptx").read_text()))
        self.records = NativeRecorder(self.recorder, BuiltNative(None, (b"",), (layouts,), first=3))
        self.records.listen(path)

    def trace(self, x: torch.Tensor, call: str, *more: object) -> tuple[Trace, torch.Tensor]:
        self.recorder.start([x])
        with self.recorder:
            out = torch.empty_like(x)
            given = [ctypes.c_void_p(t.data_ptr()) if isinstance(t, torch.Tensor) else t for t in more]
            getattr(self.library, call)(*given or (ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), 8))
        return self.recorder.finish([out]), out


@pytest.fixture(scope="module")
def heard(built: Path) -> Heard:
    return Heard(built)


@needs_nvcc
def test_a_launch_is_told_with_its_grid_and_its_parameters_and_what_came_before_it(heard: Heard) -> None:
    trace, _ = heard.trace(torch.arange(8.0), "call")
    assert trace.storages == (Storage("input", 0, 32), Storage("fresh", 0, 32))
    _, fill, copy, launch = trace.steps
    out = Place(1, "uint8", (32,), (1,), 0)
    assert fill == Operator("aten.fill_.Scalar", (out, Plain(0x41)), {}, (out,))
    assert isinstance(copy, Operator)
    assert copy.arguments == (Place(1, "uint8", (4,), (1,), 0), Place(0, "uint8", (4,), (1,), 0))
    assert isinstance(launch, NativeLaunch)
    assert "scale" in launch.kernel
    assert (launch.module, launch.grid, launch.block, launch.shared_bytes) == (3, (1, 2, 1), (256, 1, 1), 64)
    assert launch.pointers == (Pointer(0, 0, 4), Pointer(8, 1, 0))
    assert launch.offsets == (0, 8, 16, 24)
    assert struct.unpack_from("<if4xfxxxxd", launch.parameters, 16)[0] == 8
    assert struct.unpack_from("<f4xd", launch.parameters, 24) == (2.0, 1.0)
    assert provenance.broken_by(trace, NONE) is None
    assert provenance.untransferable(trace) is None


@needs_nvcc
def test_a_launch_is_made_again_with_the_addresses_of_another_process(heard: Heard) -> None:
    trace, _ = heard.trace(torch.arange(8.0), "call")
    launch = trace.steps[-1]
    assert isinstance(launch, NativeLaunch)
    again = parameters_at(launch, [1 << 40, 2 << 40])
    assert struct.unpack_from("<QQ", again) == ((1 << 40) + 4, 2 << 40)
    assert again[16:] == launch.parameters[16:]


@needs_nvcc
@pytest.mark.parametrize(
    ("call", "says"),
    [("fill_table", "cudaMemcpyToSymbol"), ("copy_from_host", "memory of the host"), ("with_clusters", "attributes")],
)
def test_what_cannot_be_done_again_elsewhere_is_named(heard: Heard, call: str, says: str) -> None:
    x = torch.zeros(8)
    trace, _ = heard.trace(x, call, x)
    assert says in (provenance.untransferable(trace) or "")


@needs_nvcc
def test_memory_of_earlier_calls_is_told_from_that_of_this_one(heard: Heard) -> None:
    x = torch.zeros(8)
    _, before = heard.trace(x, "call")
    trace, _ = heard.trace(x, "call", x, before, 8)
    assert [storage.kind for storage in trace.storages] == ["input", "fresh", "earlier"]


def test_a_launch_of_code_that_nobody_built_cannot_be_judged() -> None:
    recorder = Recorder()
    recorder.start([])
    NativeRecorder(recorder, BuiltNative(None, (), (), 0)).launched("elsewhere", (1, 1, 1), (1, 1, 1), 0, b"")
    assert "no kernel of the code that was built" in (provenance.untransferable(recorder.finish([])) or "")


def test_parameters_lie_as_c_lays_them_out() -> None:
    ptx = """.visible .entry one(
        .param .u64 .ptr .global .align 4 one_param_0,
        .param .u8 one_param_1,
        .param .align 16 .b8 one_param_2[20],
        .param .f32 one_param_3
    ) { } .entry none() { } .entry map(.param .align 64 .b8 map_param_0[128]) { }"""
    one, none, tensor_map = layouts_in(ptx)
    assert one.parameters == (Parameter(0, 8, 8), Parameter(8, 1, 1), Parameter(16, 20, 16), Parameter(36, 4, 4))
    assert (one.size_bytes, one.takes_tensor_map) == (40, False)
    assert (none.parameters, none.size_bytes) == ((), 0)
    assert tensor_map.takes_tensor_map


def test_arguments_of_a_kernel_take_the_size_that_it_declares() -> None:
    ptx = ".entry _Z3addPfxfd(.param .u64 a, .param .u64 b, .param .f32 c, .param .f64 d) {}"
    layout = layout_of("add", tuple(layouts_in(ptx)))
    x = torch.zeros(1)
    assert struct.unpack("<Qqf4xd", packed(layout, [x, -2, 1.5, 2.5])) == (x.data_ptr(), -2, 1.5, 2.5)
    with pytest.raises(TypeError, match="takes 4 arguments, was given 1"):
        packed(layout, [x])
    with pytest.raises(TypeError, match="type str"):
        packed(layout, [x, 1, 1.0, "2"])
    with pytest.raises(AttributeError, match="0 kernels are called 'mul'"):
        layout_of("mul", tuple(layouts_in(ptx)))


def test_an_extension_becomes_what_torch_would_have_made_of_it() -> None:
    wanted: list[NativeModule] = []
    calls = ExtensionCalls(wanted.append)
    calls.load_inline("ext", "int f();", ["a", "b"], functions={"f": "says"}, extra_cuda_cflags=["-O3", "-lcublas"])
    calls.compile_kernel("text", "k", nvcc_options=["-O3"])
    extension, kernel = wanted
    assert extension.pieces[0].text == "a\nb"
    assert extension.pieces[0].flags == ("-O3",)
    lines = (extension.host_text or "").splitlines()
    assert lines[:3] == ["#define TORCH_EXTENSION_NAME ext", "#include <torch/extension.h>", "int f();"]
    assert 'm.def("f", torch::wrap_pybind_function(f), "says");' in lines
    assert (kernel.host_text, kernel.kernel, kernel.pieces[0].built_by_torch) == (None, "k", False)


def test_a_toolkit_of_another_version_than_torchs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "include/cuda.h").write_text("#define CUDA_VERSION 12040\n")
    found = Toolchain("cuda", f"{tmp_path}/bin/nvcc", str(tmp_path))
    monkeypatch.setattr(native_compilers, "_torch_cuda", lambda: 13)
    assert "has CUDA 12, and torch is built for CUDA 13" in (native_compilers.runs_here(found) or "")
    monkeypatch.setattr(native_compilers, "_torch_cuda", lambda: 12)
    assert native_compilers.runs_here(found) is None


def test_a_launch_survives_its_way_through_a_channel() -> None:
    launch = NativeLaunch(0, "k", (1, 1, 1), (2, 1, 1), 0, b"\x00\xff", (0,), (Pointer(0, 0, 4),))
    trace = Trace((), (launch,), ())
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(trace), type=Trace) == trace
