"""Records that are played: what comes out, what is refused, and by which name."""

from __future__ import annotations

import msgspec
import pytest
import torch

from weir.kernel_eval.ipc.framing import FrameError, decode
from weir.kernel_eval.ipc.messages import KernelIr, Played, Recorded
from weir.kernel_eval.ipc.tensor_arena import Arena, attach
from weir.kernel_eval.ipc.trace import Argument, Launch, Many, Operator, Place, Plain, Storage, Trace
from weir.kernel_eval.replay.ir_launches import IrLaunches, LaunchFailed
from weir.kernel_eval.replay.player import play
from weir.kernel_eval.replay.steps import check_narrowing

N = 10
TEXT = """module {
  tt.func public @add(%x_ptr: !tt.ptr<f32>, %out_ptr: !tt.ptr<f32>, %n: i32) attributes {noinline = false} {
    %cst = arith.constant dense<1.000000e+00> : tensor<8xf32>
    %c8_i32 = arith.constant 8 : i32
    %0 = tt.get_program_id x : i32
    %1 = arith.muli %0, %c8_i32 : i32
    %2 = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
    %3 = tt.splat %1 : i32 -> tensor<8xi32>
    %4 = arith.addi %3, %2 : tensor<8xi32>
    %5 = tt.splat %n : i32 -> tensor<8xi32>
    %6 = arith.cmpi slt, %4, %5 : tensor<8xi32>
    %7 = tt.splat %x_ptr : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
    %8 = tt.addptr %7, %4 : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
    %9 = tt.load %8, %6 : tensor<8x!tt.ptr<f32>>
    %10 = arith.addf %9, %cst : tensor<8xf32>
    %11 = tt.splat %out_ptr : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
    %12 = tt.addptr %11, %4 : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
    tt.store %12, %10, %6 : tensor<8x!tt.ptr<f32>>
    tt.return
  }
}
"""
X, OUT = Place(0, "float32", (N,), (1,), 0), Place(1, "float32", (N,), (1,), 0)
STORAGES = (Storage("input", 0, 4 * N), Storage("fresh", 0, 4 * N))


def played(
    *steps: Operator | Launch,
    text: str = TEXT,
    output: Place = OUT,
    storages: tuple[Storage, ...] = STORAGES,
    number: int = 0,
) -> tuple[torch.Tensor, Played]:
    """The output and the report of a record on the numbers from 0."""
    arena = Arena([[torch.arange(float(N))], []], [torch.empty(N)], 64)
    memory = attach(arena.spec, arena.fd)
    launches = IrLaunches([KernelIr("add:1", text, {})], 1 << 30, 60.0)
    launches.begin(exact_dots=True, marks=True)
    report = play(Trace(storages, tuple(steps), (output,)), launches, memory, arena.spec, marks=True, number=number)
    return arena.take_outputs()[0], report


def launch(*arguments: Argument, grid: tuple[int, ...] = (2,)) -> Launch:
    return Launch("add", 1, grid, {}, {}, 0, arguments)


def test_a_launch_computes_from_the_inputs_and_says_what_it_stored() -> None:
    output, report = played(launch(X, OUT, Plain(N)))
    assert torch.equal(output, torch.arange(float(N)) + 1)
    assert report == Played((1.0,), (), 0)


def test_what_no_step_wrote_has_other_values_in_each_of_eight_calls_and_is_not_the_kernels() -> None:
    found = [played(launch(X, OUT, Plain(4)), number=number) for number in range(8)]
    assert all(torch.equal(output[:4], torch.arange(4.0) + 1) for output, _ in found)
    assert [report.coverage for _, report in found] == [(0.4,)] * 8
    left = torch.stack([output[4:] for output, _ in found])
    assert left.isnan().sum(0).tolist() == (left > 1e38).sum(0).tolist() == [2] * (N - 4)
    assert bool(((left == 0).sum(0) >= 1).all())


def test_operators_move_what_kernels_made_and_a_changed_input_is_told() -> None:
    flipped = Operator("aten.flip.default", (OUT, Many("list", (Plain(0),))), {}, (Place(2, "float32", (N,), (1,), 0),))
    output, report = played(
        launch(X, OUT, Plain(N)),
        flipped,
        launch(X, X, Plain(N)),
        output=Place(2, "float32", (N,), (1,), 0),
        storages=(*STORAGES, Storage("fresh", 0, 4 * N)),
    )
    assert torch.equal(output, (torch.arange(float(N)) + 1).flip(0))
    assert (report.coverage, report.changed_inputs) == ((1.0,), (0,))


def test_calls_in_succession_begin_with_the_state_that_the_last_one_left() -> None:
    state = Place(0, "float32", (N,), (1,), 0)
    trace = Trace((Storage("state", 0, 4 * N),), (launch(state, state, Plain(N)),), (state,))
    launches, left, outputs = IrLaunches([KernelIr("add:1", TEXT, {})], 1 << 30, 60.0), dict[int, torch.Tensor](), []
    for begins_with in (left, left, None):
        arena = Arena([[], [torch.arange(float(N))]], [torch.empty(N)], 64)
        launches.begin(exact_dots=True, marks=False)
        report = play(trace, launches, attach(arena.spec, arena.fd), arena.spec, marks=False, left=begins_with)
        assert report.changed_state == (0,)
        outputs.append(arena.take_outputs()[0] - torch.arange(float(N)))
    assert [float(output.mean()) for output in outputs] == [1.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (launch(X, OUT, Plain(N + 1)), "out_of_bounds"),
        (launch(X, Place(1, "float32", (N,), (1,), 4), Plain(N)), "out_of_bounds"),
        (launch(X, Place(1, "uint8", (N,), (1,), 2), Plain(4)), "misaligned"),
        (launch(X, OUT), "malformed"),
        (launch(X, OUT, X), "malformed"),
        (Launch("add", 1, (1,), {}, {}, 1, (X, OUT, Plain(N))), "malformed"),
        (launch(X, OUT, Plain(1), grid=(1 << 30, 1 << 10)), "too_much"),
    ],
)
def test_a_launch_that_fails_is_refused_by_name(step: Launch, kind: str) -> None:
    with pytest.raises(LaunchFailed) as failed:
        played(step)
    assert failed.value.kind == kind
    assert failed.value.kernel == "add:1"


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("arith.addf", "arith.opens", "unsupported"),
        ("tt.return", "}}} tt.return", "malformed"),
        ("tensor<8xf32>\n    %11", "tensor<16xf32>\n    %11", "malformed"),
    ],
)
def test_ir_that_is_not_known_is_refused_before_it_runs(old: str, new: str, kind: str) -> None:
    assert old in TEXT
    with pytest.raises(LaunchFailed) as failed:
        played(launch(X, OUT, Plain(N)), text=TEXT.replace(old, new))
    assert failed.value.kind == kind


def test_programs_that_write_to_one_place_have_no_defined_result() -> None:
    everywhere = TEXT.replace("%12 = tt.addptr %11, %4", "%12 = tt.addptr %11, %2")
    with pytest.raises(LaunchFailed) as failed:
        played(launch(X, OUT, Plain(N)), text=everywhere)
    assert failed.value.kind == "order"


@pytest.mark.parametrize("name", ["prims.add.default", "aten.no_such.default", "aten.fill_.Scalar"])
def test_an_operator_that_is_not_torchs_or_writes_elsewhere_is_refused(name: str) -> None:
    step = Operator(name, (X, Plain(0)), {}, (OUT,))
    with pytest.raises((ValueError, AttributeError)):
        played(step, launch(X, OUT, Plain(N)))


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (
            Operator("aten.clone.default", (X,), {}, (Place(1, "int32", (N,), (1,), 0),)),
            "made a tensor of another form",
        ),
        (Operator("aten.clone.default", (X,), {}, (Place(1, "float32", (1, N), (N, 1), 0),)), "another form"),
        (Operator("aten.roll.default", (X, Many("list", (X,))), {}, (OUT,)), "is given a tensor for shifts"),
        (Operator("aten.full_like.default", (X, X), {}, (OUT,)), "is given a tensor for fill_value"),
    ],
)
def test_a_step_that_converts_unseen_or_takes_numbers_from_tensors_is_refused(step: Operator, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        played(step)


@pytest.mark.parametrize("dtype", ["int32", "bfloat16"])
def test_an_output_of_another_dtype_than_the_answers_is_not_converted(dtype: str) -> None:
    with pytest.raises(ValueError, match="the answer was to be"):
        played(launch(X, OUT, Plain(N)), output=Place(1, dtype, (N,), (1,), 0))


@pytest.mark.parametrize("place", [Place(-2, "float32", (N,), (1,), 0), Place(0, "float32", (N,), (1,), -1)])
def test_a_negative_number_is_no_second_name_of_a_storage(place: Place) -> None:
    recorded = Recorded((), Trace(STORAGES, (Operator("aten.relu.default", (place,), {}, (OUT,)),), (OUT,)), ())
    with pytest.raises(FrameError, match="Expected `int` >= 0"):
        decode(msgspec.msgpack.encode(recorded), Recorded)


@pytest.mark.parametrize(
    ("value", "fits"), [(2**31 - 1, True), (-(2**31), True), (2**31, False), (-(2**31) - 1, False)]
)
def test_a_cast_of_integers_to_fewer_bits_changes_none_of_them(value: int, fits: bool) -> None:
    step = Operator(
        "aten._to_copy.default", (Place(0, "int64", (3,), (1,), 0),), {}, (Place(1, "int32", (3,), (1,), 0),)
    )
    storages = [torch.tensor([0, value, 5]).view(torch.uint8), torch.zeros(12, dtype=torch.uint8)]
    if fits:
        check_narrowing(step, storages)
        return
    with pytest.raises(ValueError, match="casts integers to int32, which does not hold them"):
        check_narrowing(step, storages)
