"""Every fault is provoked by a candidate or a task on a real server; those that need a device are listed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from weir.kernel_eval.protocol import Fault

Read = Callable[[str], str]
OPERATION = "tl.maximum(x, 0.0)"
LAUNCH = "relu[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)"
RETURN = "        return out"
ASSEMBLY = 'tl.inline_asm_elementwise("max.f32 $0, $1, 0f00000000;", "=r,r", [x], tl.float32, True, 1)'
LOAD = "x = tl.load(x_ptr + offsets, mask=mask)"

# what the relu candidate has, what stands there instead
PROVOKED_BY_A_CANDIDATE = {
    Fault.SYNTAX_ERROR: ("class ModelNew(torch.nn.Module):", "class ModelNew(:"),
    Fault.IMPORT_ERROR: ("import triton\n", "import triton\nimport no_such_module\n"),
    Fault.MISSING_ENTRY_POINT: ("class ModelNew(", "class Other("),
    Fault.TRITON_COMPILE_ERROR: (OPERATION, "tl.no_such_function(x)"),
    Fault.INIT_ERROR: ("    def forward", "    def __init__(self):\n        raise KeyError('no')\n    def forward"),
    Fault.RUNTIME_ERROR: (RETURN, "        raise ValueError('no')"),
    Fault.SHAPE_MISMATCH: (RETURN, "        return out[:-1]"),
    Fault.DTYPE_MISMATCH: (RETURN, "        return out.double()"),
    Fault.NON_FINITE: (OPERATION, "x / (x - x)"),
    Fault.OUTPUT_MISMATCH: (OPERATION, "tl.minimum(x, 0.0)"),
    Fault.NONDETERMINISTIC: (
        "tl.store(out_ptr + offsets",
        "tl.store(out_ptr + tl.arange(0, BLOCK) * 0, tl.program_id(0) + 1.0)\n    tl.store(out_ptr + offsets",
    ),
    Fault.ILLEGAL_ACCESS: (LOAD, "x = tl.load(x_ptr + offsets)"),
    Fault.SEGFAULT: (RETURN, "        import ctypes; ctypes.string_at(0)"),
    Fault.DEVICE_ASSERT: ("@triton.jit", "@triton.jit(debug=True)"),
    Fault.MISALIGNED: (
        LOAD,
        "x = tl.load((x_ptr.to(tl.pointer_type(tl.int8)) + 2).to(tl.pointer_type(tl.float32)) + offsets * 0)",
    ),
    Fault.OUT_OF_MEMORY: (RETURN, "        torch.ones(25_000_000_000)"),
    Fault.TIMEOUT: (RETURN, "        import time; time.sleep(60)"),
    Fault.EARLY_EXIT: (RETURN, "        import os; os._exit(0)"),
    Fault.OUTPUT_FLOOD: (RETURN, "        while True: print('x' * 65536)"),
    Fault.PROTOCOL_ERROR: (RETURN, "        import os; os.write(3, bytes([255] * 64))"),
    Fault.REWARD_HACK: (RETURN, "        return torch.relu(x)"),
    Fault.SANDBOX_VIOLATION: (RETURN, "        import os; os.fork()"),
    Fault.UNSUPPORTED: (OPERATION, ASSEMBLY),
}
# in a PID namespace of its own, the first process is deaf to signals that it sends to itself
PROVOKED_BY_A_SIGNAL = [
    (Fault.KILLED, "signal.SIGABRT"),
    (Fault.KILLED, "signal.SIGKILL"),
    (Fault.HOST_OOM_KILLED, "signal.SIGKILL if (held := b'x' * (400 << 20)) else 0"),  # of its 512 MiB
]
PROVOKED_ELSEWHERE = {
    Fault.LAUNCH_FAILURE: "test_compile.py",
    Fault.SHARED_MEM_EXCEEDED: "test_compile.py",
    Fault.UNSUPPORTED_ARCH: "test_compile.py",
    Fault.INVALID_REFERENCE: "below",
    Fault.SERVER_ERROR: "below",
    Fault.COMPILE_ERROR: "test_native.py",
    Fault.NOT_RUN: "test_native.py",
}
NEEDS_A_DEVICE = {Fault.MEMORY_FAULT, Fault.GPU_UNHEALTHY}


@pytest.mark.parametrize("fault", list(PROVOKED_BY_A_CANDIDATE), ids=str)
def test_a_candidate_provokes_it(fault: Fault, server: Any, read_example: Read) -> None:
    old, new = PROVOKED_BY_A_CANDIDATE[fault]
    source = read_example("relu_candidate")
    assert old in source
    if fault is Fault.DEVICE_ASSERT:  # compiled with debug only
        source = source.replace(LOAD, LOAD + "\n    tl.device_assert(x > 1e9, 'too small')")
    reply = server.evaluate(source.replace(old, new))
    assert reply["fault"] == fault, reply
    assert not reply["correct"]
    assert (reply["raw_reward"] is None) == fault.ours


@pytest.mark.parametrize(("fault", "signal"), PROVOKED_BY_A_SIGNAL)
def test_a_signal_provokes_it(fault: Fault, signal: str, start_server: Any, read_example: Read) -> None:
    ended = f"        import signal; signal.raise_signal({signal})"
    with start_server(sandbox="rlimits", call_timeout_s=60.0) as weak:
        reply = weak.evaluate(read_example("relu_candidate").replace(RETURN, ended))
    assert (reply["fault"], reply["raw_reward"]) == (fault, 0.1), reply


def test_a_task_that_does_not_run_is_an_invalid_reference(server: Any, read_example: Read) -> None:
    reply = server.evaluate(read_example("relu_candidate"), "class Model: pass")
    assert (reply["fault"], reply["raw_reward"]) == (Fault.INVALID_REFERENCE, None)


def test_an_evaluation_that_the_server_gives_up_is_its_own_error(start_server: Any, read_example: Read) -> None:
    slow = read_example("relu_task").replace("return [", "import time; time.sleep(30); return [")
    with start_server(evaluation_timeout_s=2.0) as impatient:
        reply = impatient.evaluate(read_example("relu_candidate"), slow)
    assert (reply["fault"], reply["raw_reward"]) == (Fault.SERVER_ERROR, None)


def test_calls_that_stay_below_their_limit_and_take_too_long_together_are_the_candidates(
    start_server: Any, read_example: Read
) -> None:
    slow = read_example("relu_candidate").replace(RETURN, "        import time; time.sleep(1)\n" + RETURN)
    with start_server(evaluation_timeout_s=12.0, call_timeout_s=10.0) as impatient:
        reply = impatient.evaluate(slow, num_correct_trials=32)
    assert (reply["fault"], reply["raw_reward"]) == (Fault.TIMEOUT, 0.1), reply
    assert "all its calls together" in reply["fault_message"]


def test_what_compiles_and_cannot_be_run_is_left_out_or_earns_what_the_server_says(
    start_server: Any, server: Any, read_example: Read
) -> None:
    source = read_example("relu_candidate").replace(OPERATION, ASSEMBLY)
    left_out = server.evaluate(source)
    assert (left_out["fault"], left_out["raw_reward"]) == (Fault.UNSUPPORTED, None), left_out
    wrong = server.evaluate(source.replace("max.f32", "maxx.f32"))
    assert (wrong["fault"], wrong["raw_reward"]) == (Fault.TRITON_COMPILE_ERROR, 0.1), wrong
    with start_server(reward_compiled=True) as generous:
        reply = generous.evaluate(source)
    assert (reply["fault"], reply["raw_reward"]) == (Fault.NOT_RUN, 0.1), reply


FORGED = """        import gc, string
        from itertools import islice, product
        recorder = next(o for o in gc.get_objects() if type(o).__name__ == "Recorder")
        names = type(recorder).finish.__globals__
        Operator, Place, steps = names["Operator"], names["Place"], recorder._steps
        clone = lambda read, made: Operator("aten.clone.default", tuple(read), {}, tuple(made))
        of = lambda dtype: Place(0, dtype, (), (), 0)
"""
FORGERIES = {
    "a number of 5000 digits": "steps.insert(0, clone([of('float' + '1' * 5000)], [recorder.place(out)]))",
    "a digit of no number": "steps.insert(0, clone([of('float\u00b2')], [recorder.place(out)]))",
    "60,000 dtypes": (  # each compared with each
        "all = [of(''.join(t) + '32') for t in islice(product(string.ascii_letters, repeat=4), 60000)]"
        "; steps[:0] = [clone([recorder.place(x)], all), clone(all, [])]"
    ),
    "60,000 ways to launch": (  # each with a copy of all steps
        "import msgspec; launch = msgspec.structs.replace(steps[-1], ir_arguments=()); copied = msgspec.structs.replace"
        "; steps[-1] = copied(steps[-1], alternatives=tuple(copied(launch, grid=(n + 1,)) for n in range(60000)))"
        "; steps.extend([clone([], [])] * 100000)"
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES)
def test_a_record_that_no_judge_can_follow_is_the_candidates_fault(
    forgery: str, server: Any, read_example: Read
) -> None:
    source = read_example("relu_candidate").replace(RETURN, f"{FORGED}        {forgery}\n{RETURN}")
    reply = server.evaluate(source)
    assert (reply["fault"], reply["raw_reward"]) == (Fault.REWARD_HACK, 0.0), reply
    assert reply["details"]["rule"] == "replay_differs"
    assert reply["seconds"] < 20


def test_every_fault_has_its_test() -> None:
    known = {
        *PROVOKED_BY_A_CANDIDATE,
        *(fault for fault, _ in PROVOKED_BY_A_SIGNAL),
        *PROVOKED_ELSEWHERE,
        *NEEDS_A_DEVICE,
    }
    assert known == set(Fault)


LINGERS = "        import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"


@pytest.mark.parametrize(
    ("fault", "reported"),
    [
        (Fault.RUNTIME_ERROR, Fault.RUNTIME_ERROR),
        (Fault.TRITON_COMPILE_ERROR, Fault.TRITON_COMPILE_ERROR),
        (Fault.OUTPUT_MISMATCH, Fault.REWARD_HACK),
    ],
)
def test_what_a_candidate_leaves_behind_hides_no_earlier_fault_and_outweighs_a_wrong_answer(
    fault: Fault, reported: Fault, server: Any, read_example: Read
) -> None:
    source = read_example("relu_candidate").replace(RETURN, LINGERS + RETURN)
    assert server.evaluate(source)["details"]["rule"] == "background_thread"
    reply = server.evaluate(source.replace(*PROVOKED_BY_A_CANDIDATE[fault]))
    assert reply["fault"] == reported, reply
