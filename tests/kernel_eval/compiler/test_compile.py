"""What the compiler refuses, what is built, and what comes of IR that a candidate's process forges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from triton.backends.nvidia.compiler import get_ptxas, sm_arch_from_capability

from weir.kernel_eval.compiler import assembler
from weir.kernel_eval.toolchain.targets import TARGETS

Read = Callable[[str], str]
OPERATION = "tl.maximum(x, 0.0)"
LAUNCH = "relu[(triton.cdiv(x.numel(), 256),)]"
REFUSED = [
    (OPERATION, "torch.relu(x)", "triton_compile_error", "relu"),
    (LAUNCH, "relu[(0, 70000)]", "launch_failure", "grid"),
    ("BLOCK=256)", "BLOCK=256, num_warps=64)", "launch_failure", "threads"),
    ("BLOCK=256)", "BLOCK=256, no_such_option=1)", "triton_compile_error", "no_such_option"),
    ("BLOCK=256)", "BLOCK=256, num_warps=3)", "triton_compile_error", "power of 2"),
]


@pytest.mark.parametrize(("old", "new", "fault", "says"), REFUSED, ids=[new[:30] for _, new, _, _ in REFUSED])
def test_what_no_gpu_would_run_is_refused(
    old: str, new: str, fault: str, says: str, server: Any, read_example: Read
) -> None:
    source = read_example("relu_candidate")
    assert old in source
    reply = server.evaluate(source.replace(old, new))
    assert (reply["fault"], reply["correct"]) == (fault, False), reply
    assert reply["raw_reward"] == 0.1
    assert says in reply["fault_message"]


def test_an_uneven_block_and_a_small_dot_are_refused_with_the_compilers_words(server: Any, read_example: Read) -> None:
    uneven = read_example("relu_candidate").replace("256", "250")
    assert "power of 2" in server.evaluate(uneven)["fault_message"]
    small = read_example("matmul_candidate").replace("BLOCK=16", "BLOCK=8").replace("[(2, 2)]", "[(4, 4)]")
    reply = server.evaluate(small, read_example("matmul_task"))
    assert reply["fault"] == "triton_compile_error"
    assert "K >= 16" in reply["fault_message"]


def test_too_much_shared_memory_is_refused_and_named(server: Any, read_example: Read) -> None:
    large = read_example("matmul_candidate").replace("N=32, BLOCK=16", "N=256, BLOCK=128, num_stages=8")
    reply = server.evaluate(large, read_example("matmul_task").replace("32", "256"))
    assert reply["fault"] == "shared_mem_exceeded", reply
    assert "232448" in reply["fault_message"]


def test_a_type_that_only_newer_devices_have_is_an_unsupported_architecture(
    start_server: Any, read_example: Read
) -> None:
    source = read_example("relu_candidate").replace(OPERATION, "tl.maximum(x, 0.0).to(tl.float8e4nv).to(tl.float32)")
    with start_server(target="sm_80") as older:
        reply = older.evaluate(source)
        plain = older.evaluate(read_example("relu_candidate"))
    assert reply["fault"] == "unsupported_arch", reply
    assert (plain["correct"], plain["details"]["compile"]["target"]) == (True, "sm_80")


FORGED = """
import importlib
capture = importlib.import_module("weir.kernel_eval.recording.launch_capture")
honest = capture._as_text
capture._as_text = lambda module, metadata: honest(module, metadata).replace(OLD, NEW)
"""
FORGERIES = [
    ("b'arith.maxnumf'", "b'arith.minnumf'", "output_mismatch"),
    ("b'arith.maxnumf'", "b'arith.readsfile'", "triton_compile_error"),
    ("b'tt.return'", "b'}}}} tt.return'", "triton_compile_error"),
    ("b'256'", "b'250'", "triton_compile_error"),
    ("b'module {'", "b'module  {'", "reward_hack"),  # read alike by all, and yet not what a compiler prints
    ("b'tt.return'", "b'// a comment\\n    tt.return'", "reward_hack"),
    ("b'arith.constant 256 :'", "b'arith.constant 0x100 :'", "reward_hack"),
]


@pytest.mark.parametrize(("old", "new", "fault"), FORGERIES, ids=[new for _, new, _ in FORGERIES])
def test_forged_ir_is_judged_as_what_it_is(old: str, new: str, fault: str, server: Any, read_example: Read) -> None:
    forged = FORGED.replace("OLD", old).replace("NEW", new)
    reply = server.evaluate(read_example("relu_candidate") + forged)
    assert (reply["fault"], reply["correct"]) == (fault, False), reply


FORGED_OPTION = """
import importlib
capture = importlib.import_module("weir.kernel_eval.recording.launch_capture")
honest = capture.KernelIr
capture.KernelIr = lambda kernel, text, options: honest(kernel, text, {**options, **OPTION})
"""
OPTIONS: list[dict[str, Any]] = [{"ir_override": "/tmp/other.ptx"}, {"arch": "sm80"}, {"num_warps": "4"}, {"debug": 1}]


@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_a_forged_option_reaches_no_compiler(option: dict[str, Any], server: Any, read_example: Read) -> None:
    reply = server.evaluate(read_example("relu_candidate") + FORGED_OPTION.replace("OPTION", repr(option)))
    assert (reply["fault"], reply["correct"]) == ("launch_failure", False), reply
    assert next(iter(option)) in reply["fault_message"]


def test_the_build_is_of_the_launches_that_gave_the_answer(server: Any, read_example: Read) -> None:
    source = read_example("relu_candidate").replace("BLOCK=256)", "BLOCK=256, num_warps=8, num_stages=1)")
    (kernel,) = server.evaluate(source)["details"]["compile"]["kernels"]
    assert (kernel["num_warps"], kernel["num_stages"]) == (8, 1)


def test_a_compilation_that_takes_too_long_is_a_timeout(start_server: Any, read_example: Read) -> None:
    unrolled = "for _ in tl.static_range(10000):\n        x = tl.where(x > 0.0, x, 0.0)\n    tl.store("
    source = read_example("relu_candidate").replace("tl.store(", unrolled)
    with start_server(compile_timeout_s=2.0, call_timeout_s=60.0, output_bytes=1 << 26) as impatient:
        reply = impatient.evaluate(source)
        after = impatient.evaluate(read_example("relu_candidate"))
    assert (reply["fault"], reply["details"]["phase"], reply["raw_reward"]) == ("timeout", "compile", 0.1), reply
    assert after["correct"]


SECOND = """
@triton.jit
def second(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)
"""


READS = ["float(out.max()) > 0", "out[0].item() > 0", "out.tolist()[0] > 0", "out.any()", "out[out > 0].numel()"]


@pytest.mark.parametrize("condition", READS)
def test_a_model_that_reads_what_a_kernel_computed_is_told_so(condition: str, server: Any, read_example: Read) -> None:
    launched = f"        if {condition}:\n            second[(1,)](out, 1, BLOCK=16)\n        return out"
    reply = server.evaluate(read_example("relu_candidate").replace("        return out", launched) + SECOND)
    assert (reply["fault"], reply["details"]["exception"]) == ("runtime_error", "NeedsKernelResult"), reply
    assert "keep such values on the device" in reply["fault_message"]


def test_all_kernels_of_a_call_are_built(server: Any, read_example: Read) -> None:
    launched = "        second[(1,)](out, 1, BLOCK=16)\n        return out"
    reply = server.evaluate(read_example("relu_candidate").replace("        return out", launched) + SECOND)
    assert reply["correct"], reply
    assert [kernel["kernel"].split(":")[0] for kernel in reply["details"]["compile"]["kernels"]] == ["relu", "second"]
    assert len(reply["details"]["compile"]["ir"]) == 64


TUNED = """
@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=64), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit"""


def test_a_configuration_that_no_device_takes_is_skipped(server: Any, read_example: Read) -> None:
    source = read_example("relu_candidate").replace("\n@triton.jit", TUNED)
    source = source.replace(LAUNCH, "relu[lambda m: (triton.cdiv(x.numel(), m['BLOCK']),)]").replace(
        ", BLOCK=256)", ")"
    )
    reply = server.evaluate(source)
    assert reply["correct"], reply
    assert [kernel["num_warps"] for kernel in reply["details"]["compile"]["kernels"]] == [4]
    refused = server.evaluate(source.replace('triton.Config({"BLOCK": 128})', 'triton.Config({"BLOCK": 100})'))
    assert (refused["fault"], refused["raw_reward"]) == ("triton_compile_error", 0.1), refused


def test_texts_are_assembled_by_the_program_and_for_the_architecture_that_triton_takes() -> None:
    for target in TARGETS.values():
        assert assembler.program_for(target) == get_ptxas(target.arch).path
        assert assembler.architecture(target) == sm_arch_from_capability(target.arch)
