"""The pure parts: rewards, faults from signals and exceptions, comparison, guard zones, messages, policy, seeds."""

from __future__ import annotations

import errno
import signal
import socket

import pytest
import torch

from weir.kernel_eval.config import KernelEvalConfig
from weir.kernel_eval.ipc import framing
from weir.kernel_eval.ipc.forkserver import End, Exited, Spawn
from weir.kernel_eval.ipc.messages import Failed, Load, Phase, Refusal
from weir.kernel_eval.ipc.tensor_arena import Arena, attach, flat_view, read_value
from weir.kernel_eval.judge.channel import fault_classification
from weir.kernel_eval.judge.channel.faults import FaultDetected
from weir.kernel_eval.judge.checks.tolerance import compare
from weir.kernel_eval.judge.source import rules, source_policy
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Outcome, Stage, raw_reward
from weir.kernel_eval.tasks.seeds import derive_seed
from weir.kernel_eval.worker.guard_zones import GuardedAllocations

LIMITS = KernelEvalConfig(cpu_s=10).limits


@pytest.mark.parametrize(
    ("stage", "fault", "reward"),
    [
        (Stage.NOTHING, Fault.SYNTAX_ERROR, 0.0),
        (Stage.LOADED, Fault.RUNTIME_ERROR, 0.1),
        (Stage.ANSWERED, Fault.OUTPUT_MISMATCH, 0.3),
        (Stage.CORRECT, None, 1.0),
        (Stage.ANSWERED, Fault.REWARD_HACK, 0.0),
        (Stage.CORRECT, Fault.SERVER_ERROR, None),
        (Stage.NOTHING, Fault.UNSUPPORTED, None),
    ],
)
def test_the_reward_follows_the_stage_unless_a_rule_was_broken(
    stage: Stage, fault: Fault | None, reward: float | None
) -> None:
    assert raw_reward(Outcome(stage), fault) == reward


def test_every_fault_belongs_to_exactly_one_group() -> None:
    assert all([f.ours, f.policy, f.candidate].count(True) == 1 for f in Fault)
    assert {f for f in Fault if f.ours} == {"invalid_reference", "server_error", "gpu_unhealthy", "unsupported"}
    assert {f for f in Fault if f.retryable} == {"server_error", "gpu_unhealthy"}


@pytest.mark.parametrize(
    ("code", "number", "killed_by_us", "cpu_s", "fault"),
    [
        (0, None, False, 0.1, Fault.EARLY_EXIT),
        (7, None, False, 0.1, Fault.EARLY_EXIT),
        (None, signal.SIGSEGV, False, 0.1, Fault.SEGFAULT),
        (None, signal.SIGBUS, False, 0.1, Fault.SEGFAULT),
        (None, signal.SIGXCPU, False, 10.0, Fault.TIMEOUT),
        (None, signal.SIGXFSZ, False, 0.1, Fault.OUTPUT_FLOOD),
        (None, signal.SIGSYS, False, 0.1, Fault.SANDBOX_VIOLATION),
        (None, signal.SIGFPE, False, 0.1, Fault.KILLED),
        (None, signal.SIGKILL, False, 9.9, Fault.TIMEOUT),
        (None, signal.SIGKILL, False, 0.1, Fault.KILLED),
        (None, signal.SIGKILL, True, 0.1, Fault.PROTOCOL_ERROR),
    ],
)
def test_an_end_without_an_answer_is_classified_by_what_the_system_reports(
    code: int | None, number: int | None, killed_by_us: bool, cpu_s: float, fault: Fault
) -> None:
    exited = Exited(exit_code=code, signal=number, killed_by_us=killed_by_us, cpu_s=cpu_s, max_rss_bytes=0)
    found = fault_classification.from_exit(exited, "call", LIMITS)
    assert (found.fault, found.stage) == (fault, Stage.LOADED)
    assert fault_classification.from_exit(exited, "load", LIMITS).stage is Stage.NOTHING


@pytest.mark.parametrize(
    ("own_pids", "share", "fault"),
    [
        (True, 0.6, Fault.HOST_OOM_KILLED),
        (False, 0.6, Fault.HOST_OOM_KILLED),
        (True, 0.1, Fault.SERVER_ERROR),
        (False, 0.1, Fault.KILLED),
    ],
)
def test_a_kill_is_the_candidates_where_it_held_much_memory_or_could_signal_itself(
    own_pids: bool, share: float, fault: Fault
) -> None:
    exited = Exited(
        exit_code=None,
        signal=signal.SIGKILL,
        killed_by_us=False,
        cpu_s=0.1,
        max_rss_bytes=0,
        own_rss_bytes=int(share * LIMITS.memory_bytes),
        own_pids=own_pids,
    )
    found = fault_classification.from_exit(exited, "call", LIMITS)
    assert (found.fault, found.details["signal"]) == (fault, "SIGKILL")


@pytest.mark.parametrize(
    ("phase", "exception", "number", "fault"),
    [
        ("load", "SyntaxError", None, Fault.SYNTAX_ERROR),
        ("load", "NameError", None, Fault.IMPORT_ERROR),
        ("init", "TypeError", None, Fault.INIT_ERROR),
        ("call", "TypeError", None, Fault.RUNTIME_ERROR),
        ("call", "NotImplementedError", None, Fault.RUNTIME_ERROR),
        ("call", "SystemExit", None, Fault.EARLY_EXIT),
        ("call", "PermissionError", errno.EPERM, Fault.SANDBOX_VIOLATION),
        ("call", "OSError", errno.EROFS, Fault.SANDBOX_VIOLATION),
        ("call", "OSError", errno.EFBIG, Fault.OUTPUT_FLOOD),
        ("call", "FileNotFoundError", errno.ENOENT, Fault.RUNTIME_ERROR),
    ],
)
def test_an_exception_is_classified_by_its_type_and_phase(
    phase: Phase, exception: str, number: int | None, fault: Fault
) -> None:
    failed = Failed(phase, exception, "m", "t", os_errno=number)
    assert fault_classification.from_exception(failed).fault is fault


@pytest.mark.parametrize(
    ("refusal", "claimed", "of_player"),
    [
        ("compiler", Fault.TRITON_COMPILE_ERROR, Fault.TRITON_COMPILE_ERROR),
        ("host_read", Fault.RUNTIME_ERROR, Fault.RUNTIME_ERROR),
        ("unsupported", Fault.RUNTIME_ERROR, Fault.UNSUPPORTED),
        ("out_of_bounds", Fault.RUNTIME_ERROR, Fault.ILLEGAL_ACCESS),
        ("order", Fault.RUNTIME_ERROR, Fault.NONDETERMINISTIC),
    ],
)
def test_what_only_a_player_can_know_is_not_believed_of_a_candidate(
    refusal: Refusal, claimed: Fault, of_player: Fault
) -> None:
    found = [
        fault_classification.from_exception(Failed(phase, "E", "why", "", refused_by=refusal, kernel="k:1")).fault
        for phase in ("call", "replay")
    ]
    assert found == [claimed, of_player]


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("got", "expected", "fault"),
    [
        ([1.0, 2.0], [1.0, 2.0], None),
        ([1.0, 2.0 + 1e-4], [1.0, 2.0], None),
        ([1.0, 2.01], [1.0, 2.0], Fault.OUTPUT_MISMATCH),
        ([0.0, 0.0], [1e-9, 2e-9], Fault.OUTPUT_MISMATCH),
        ([0.0, 0.0], [0.0, 0.0], None),
        ([0.0, 1e-9], [0.0, 0.0], Fault.OUTPUT_MISMATCH),
        ([NAN, 1.0], [1.0, 1.0], Fault.NON_FINITE),
        ([1.0, 1.0], [NAN, 1.0], Fault.NON_FINITE),
        ([NAN, 1.0], [NAN, 1.0], None),
        ([INF, 1.0], [INF, 1.0], None),
        ([-INF, 1.0], [INF, 1.0], Fault.NON_FINITE),
        ([INF, 1.0], [NAN, 1.0], Fault.NON_FINITE),
        ([INF, 5.0], [INF, 1.0], Fault.OUTPUT_MISMATCH),
    ],
)
def test_floats_are_compared_relative_to_the_size_of_the_answer(
    got: list[float], expected: list[float], fault: Fault | None
) -> None:
    difference = compare(torch.tensor(got), torch.tensor(expected))
    assert (difference and difference.fault) == fault


def test_integers_must_be_equal_and_the_place_of_the_first_difference_is_named() -> None:
    got, expected = torch.tensor([[1, 2], [3, 4]]), torch.tensor([[1, 2], [3, 5]])
    difference = compare(got, expected)
    assert difference is not None
    assert difference.message == "1 of 4 values are wrong, the first at index [1, 1]"
    assert compare(got > 2, expected > 2) is None


def test_a_message_shows_the_size_of_an_error_and_no_value() -> None:
    difference = compare(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.668]))
    assert difference is not None
    assert difference.message == (
        "1 of 2 values are wrong, the first at index [1], by up to 0.17 times the root mean square around it"
    )


def test_an_element_may_be_as_wrong_as_the_reference_is_in_its_own_precision() -> None:
    precise = torch.tensor([1.0, 1.0], dtype=torch.float64)
    own_errors = torch.tensor([1e-3, 0.0], dtype=torch.float64)
    assert compare(torch.tensor([1.003, 1.0]), precise, own_errors) is None
    assert compare(torch.tensor([1.02, 1.0]), precise, own_errors) is not None
    precise, own_errors = precise.repeat(100), own_errors.repeat(100)
    got = precise.float()
    got[2] = 1.003
    assert compare(got, precise, own_errors) is None
    own_errors[3:] = 0  # a single large error says nothing about the others
    got[2], got[7] = 1.0, 1.001
    assert compare(got, precise, own_errors) is not None


def test_an_argument_arrives_with_its_strides_and_its_own_storage() -> None:
    tensor = torch.arange(12, dtype=torch.float32).view(3, 4).t()
    arguments = [tensor, 3, 0.5, None, "x", [torch.ones(()), True], (torch.empty(0, 2),)]
    arena = Arena(arguments, [torch.empty(2, 2)], 64)
    received = read_value(attach(arena.spec, arena.fd), arena.spec.arguments)
    assert torch.equal(received[0], tensor)
    assert received[0].stride() == (1, 4)
    assert received[0].untyped_storage().nbytes() == 48
    assert received[1:5] == [3, 0.5, None, "x"]
    assert received[5][0].item() == 1.0
    assert (type(received[6]), received[6][0].shape) == (tuple, (0, 2))


@pytest.mark.parametrize(
    ("offset", "damage"), [(0, (False, True)), (99, (False, True)), (100, (True, False)), (-1, (True, False))]
)
def test_the_judge_sees_a_write_to_an_input_and_beside_it(offset: int, damage: tuple[bool, bool]) -> None:
    arena = Arena([torch.zeros(100)], [torch.empty(4)], 64, watched=True)
    memory = attach(arena.spec, arena.fd)
    (place,) = arena.spec.arguments.items
    assert arena.damage() == (False, False)
    start = place.offset + 4 * offset  # type: ignore[union-attr]
    memory.flat(torch.uint8, 4, start).copy_(torch.tensor([1, 2, 3, 4], dtype=torch.uint8))
    assert arena.damage() == damage


def test_outputs_are_poisoned_before_they_are_written_and_after_they_are_taken() -> None:
    arena = Arena([], [torch.empty(2, 2)], 64)
    memory = attach(arena.spec, arena.fd)
    place = arena.spec.outputs[0]
    assert bool(flat_view(memory, place).isnan().all())
    flat_view(memory, place).copy_(torch.arange(4.0))
    assert torch.equal(arena.take_outputs()[0], torch.arange(4.0).view(2, 2))
    assert bool(flat_view(memory, place).isnan().all())


def test_a_write_behind_an_own_tensor_is_seen_once() -> None:
    allocations = GuardedAllocations(64)
    with allocations:
        out, other = torch.empty(100), torch.empty(100)
        zeros = torch.zeros(3)
    assert bool(out.isnan().any() and (out == 0).any() and (out > 1e30).any())
    assert not torch.equal(out.nan_to_num(), other.nan_to_num())
    assert zeros.tolist() == [0.0, 0.0, 0.0]
    out.as_strided((1,), (1,), out.storage_offset() + 100).fill_(1.0)
    assert "(100,) float32" in (allocations.take_overrun() or "")
    assert allocations.take_overrun() is None


def test_a_frame_of_the_wrong_kind_size_or_shape_is_refused() -> None:
    ours, theirs = socket.socketpair()
    framing.send(ours, Load("source"))
    with pytest.raises(framing.FrameError):
        framing.receive(theirs, Spawn | End)  # type: ignore[arg-type]
    ours.sendall(b"\xff\xff\xff\x7f")
    with pytest.raises(framing.FrameError, match="at most"):
        framing.receive(theirs, Load)
    ours.sendall(b"\x04\x00\x00\x00abcd")
    with pytest.raises(framing.FrameError):
        framing.receive(theirs, Load)
    ours.sendall(b"\x04\x00")
    with pytest.raises(TimeoutError):
        framing.receive(theirs, Load, timeout_s=0.05)
    ours.close()
    with pytest.raises(framing.ChannelClosed):
        framing.receive(theirs, Load)


@pytest.mark.parametrize("source", ["def f(:", "x = 1\x00", "(" * 100_000, "return 1", "-" * 200_000 + "1"])
def test_what_python_cannot_compile_is_a_syntax_error(source: str) -> None:
    with pytest.raises(SyntaxError):
        source_policy.parse(source)


@pytest.mark.parametrize(
    "source",
    [
        "(" * 100_000,
        "x.y" + ".z" * 400 + " = 1",
        "class ModelNew(A if 1 else 0x" + "f" * 5000 + "): pass",
        "q = 1\n" * (1 << 18),
    ],
)
def test_a_source_that_cannot_be_looked_through_is_the_candidates_mistake(source: str) -> None:
    with pytest.raises(FaultDetected) as found:
        source_policy.checked("import x\n" + source, frozenset(rules.RULES) - {"inherited_model", "patched_module"})
    assert (found.value.fault, found.value.stage) == (Fault.SYNTAX_ERROR, Stage.NOTHING)


def test_what_defines_no_kernel_is_told_by_its_source() -> None:
    mentioned = source_policy.parse("# triton.jit\ntext = 'triton.jit'\n")
    assert rules.broken_by_source(mentioned, frozenset()) == (
        "no_kernel_defined",
        "the source defines no Triton kernel",
    )
    assert rules.broken_by_source(source_policy.parse("k = triton.jit(f)"), frozenset()) is None


def test_seeds_differ_by_secret_and_purpose_and_repeat() -> None:
    seeds = {
        derive_seed(secret, *purpose)
        for secret in (b"a", b"b")
        for purpose in (("inputs", 1), ("inputs", 2), ("weights",))
    }
    assert len(seeds) == 6
    assert derive_seed(b"a", "inputs", 1) == derive_seed(b"a", "inputs", 1) < 2**63
