"""Forms of inputs, and what stands in for inputs in a process that may not see them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from weir.kernel_eval.ipc.messages import KernelIr, Output, Recorded
from weir.kernel_eval.ipc.trace import (
    MOST_WAYS,
    Launch,
    NativeLaunch,
    Opaque,
    Operator,
    Place,
    Pointer,
    Step,
    Storage,
    Trace,
)
from weir.kernel_eval.judge.channel.faults import FaultDetected
from weir.kernel_eval.judge.checks import recording
from weir.kernel_eval.judge.checks.recording import MAX_STEPS, digest, form_of, stand_ins
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.tasks.reference import Reference

TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, index, scale): return x[index] * scale
def get_inputs(): return [torch.randn(6, 4), torch.randint(0, 6, (5,)), 0.5]
"""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"num_warps": 32, "maxnreg": None, "num_stages": 0, "debug": False}, None),
        ({"num_warps": 0}, "num_warps=0"),
        ({"num_warps": True}, "num_warps=True"),
        ({"num_ctas": 17}, "num_ctas=17"),
        ({"num_stages": 3.0}, "num_stages=3.0"),
        ({"launch_pdl": "yes"}, "launch_pdl='yes'"),
        ({"extern_libs": "libdevice"}, "extern_libs is no option"),
        ({"ir_override": "k.ptx"}, "ir_override is no option"),
    ],
)
def test_options_of_a_launch_are_known_ones_in_their_ranges(options: dict[str, Any], says: str | None) -> None:
    recorded = Recorded((), Trace((), (), ()), (KernelIr("k:1", "", options),))
    if says is None:
        recording._check_launches(recorded)
        return
    with pytest.raises(FaultDetected, match=re.escape(says)) as caught:
        recording._check_launches(recorded)
    assert caught.value.fault is Fault.LAUNCH_FAILURE


_MEMORY = (Storage("fresh", 0, 24),)


def _of_dtype(dtype: str) -> Place:
    return Place(0, dtype, (1,), (1,), 0)


def _outputs(trace: Trace) -> list[Output]:
    """What the worker says of outputs that are those of the record."""
    return [Output("Tensor", one.dtype, one.shape) for one in trace.outputs if isinstance(one, Place)]


_HOLDERS = [
    lambda place: Trace(_MEMORY, (Operator("aten.clone.default", (place,), {}, ()),), ()),
    lambda place: Trace(_MEMORY, (Operator("aten.clone.default", (), {"other": place}, ()),), ()),
    lambda place: Trace(_MEMORY, (Operator("aten.clone.default", (), {}, (place,)),), ()),
    lambda place: Trace(_MEMORY, (Launch("k", 1, (1,), {}, ir_arguments=(place,)),), ()),
    lambda place: Trace(_MEMORY, (), (place,)),
]


@pytest.mark.parametrize("dtype", ["float" + "1" * 5000, "float\u00b2", "abcd32", "torch.float32", ""])
@pytest.mark.parametrize("trace", _HOLDERS)
def test_a_record_has_no_dtypes_but_those_of_torch(dtype: str, trace: Any) -> None:
    for known in ("float32", "bfloat16", "float8_e4m3fn", "complex64", "quint8"):
        recording.check_tensors(made := trace(_of_dtype(known)), _outputs(made))
    with pytest.raises(FaultDetected, match="which torch lacks") as caught:
        recording.check_tensors(made := trace(_of_dtype(dtype)), _outputs(made))
    assert caught.value.details["rule"] == "replay_differs"


@pytest.mark.parametrize("trace", _HOLDERS)
@pytest.mark.parametrize(
    ("place", "says"),
    [
        (Place(0, "float32", (2, 3), (3,), 0), "whose strides are not those of its shape"),
        (Place(0, "float32", (), (1,), 0), "whose strides are not those of its shape"),
        (Place(1, "float32", (0,), (1,), 0), "in memory that it does not name"),
    ],
)
def test_tensors_of_a_record_are_such_as_torch_has(place: Place, says: str, trace: Any) -> None:
    with pytest.raises(FaultDetected, match=says) as caught:
        recording.check_tensors(made := trace(place), _outputs(made))
    assert caught.value.details["rule"] == "replay_differs"


def test_addresses_that_native_kernels_get_lie_in_memory_that_the_record_names() -> None:
    def launched(storage: int) -> Trace:
        launch = NativeLaunch(0, "k", (1, 1, 1), (1, 1, 1), 0, bytes(8), (0,), (Pointer(0, storage, 0),))
        return Trace(_MEMORY, (launch,), ())

    recording.check_tensors(launched(0), [])
    with pytest.raises(FaultDetected, match="in memory that it does not name"):
        recording.check_tensors(launched(1), [])


def test_the_outputs_of_a_record_are_those_returned() -> None:
    place, returned = Place(0, "float32", (2,), (1,), 0), Output("Tensor", "float32", (2,))
    recording.check_tensors(Trace(_MEMORY, (), (place, Opaque("int"))), [returned, Output("int")])
    for recorded, said in [
        ((), [returned]),
        ((place, place), [returned]),
        ((Opaque("int"),), [returned]),
        ((place,), [Output("int")]),
        ((Place(0, "float32", (2, 1), (1, 1), 0),), [returned]),
        ((Place(0, "float64", (2,), (1,), 0),), [returned]),
    ]:
        with pytest.raises(FaultDetected, match="are not those that the call returned") as caught:
            recording.check_tensors(Trace(_MEMORY, (), recorded), said)
        assert caught.value.details["rule"] == "replay_differs"


def test_a_launch_has_no_more_ways_than_a_recorder_tries() -> None:
    one = Launch("k", 1, (1,), {}, ir=0)

    def ways(count: int) -> Recorded:
        step: Step = Launch("k", 1, (1,), {}, ir=0, alternatives=(one,) * (count - 1))
        return Recorded((), Trace((), (step,), ()), (KernelIr("k:1", "", {}),))

    recording._check_launches(ways(MOST_WAYS))
    with pytest.raises(FaultDetected, match="65 ways to launch k:1, at most 64") as caught:
        recording._check_launches(ways(MOST_WAYS + 1))
    assert caught.value.details["rule"] == "replay_differs"


def test_a_call_has_no_more_steps_than_a_judge_follows() -> None:
    step: Step = Launch("k", 1, (1,), {}, ir=0)
    recording._check_length(Trace((), (step,) * MAX_STEPS, ()))
    with pytest.raises(FaultDetected, match="a call of 65537 steps, at most 65536 are judged") as caught:
        recording._check_length(Trace((), (step,) * (MAX_STEPS + 1), ()))
    assert caught.value.details["rule"] == "replay_differs"


def test_a_form_is_shapes_strides_dtypes_and_all_that_is_no_tensor() -> None:
    x = torch.randn(4, 6)
    same = form_of([torch.zeros(4, 6), 3, [x]])
    assert form_of([x, 3, [x]]) == same
    for other in ([x.t(), 3, [x]], [x.double(), 3, [x]], [x, 4, [x]], [x, 3, (x,)], [x, 3.0, [x]], [x, 3]):
        assert form_of(other) != same


def test_stand_ins_have_the_form_of_the_inputs_and_the_contents_of_another_draw() -> None:
    reference = Reference(TASK, 10.0)
    x, index, scale = reference.inputs(1)
    inputs = [x.t().contiguous().t()[:3], index, scale]
    stood_in = stand_ins(inputs, reference, 2)
    assert form_of(stood_in) == form_of(inputs)
    drawn = reference.inputs(2)
    assert torch.equal(stood_in[0], drawn[0][:3])
    assert torch.equal(stood_in[1], drawn[1])
    assert not torch.equal(stood_in[0], inputs[0])


def test_a_tensor_that_no_draw_fits_is_stood_in_for_by_zeros() -> None:
    reference = Reference(TASK, 10.0)
    (stood_in,) = stand_ins([torch.ones(2, 2, 2)], reference, 1)
    assert torch.equal(stood_in, torch.zeros(2, 2, 2))


@pytest.mark.parametrize(
    ("ir", "grid", "fault"),
    [
        (0, (1, 65535, 1), None),
        (0, (1, 65536), Fault.LAUNCH_FAILURE),
        (0, (1, 1, 1, 1), Fault.LAUNCH_FAILURE),
        (1, (1,), Fault.REWARD_HACK),
        (None, (1,), Fault.REWARD_HACK),
    ],
)
def test_a_record_of_what_no_device_launches_is_refused(
    ir: int | None, grid: tuple[int, ...], fault: Fault | None
) -> None:
    recorded = Recorded((), Trace((), (Launch("k", 1, grid, {}, {}, ir),), ()), (KernelIr("k:1", "", {}),))
    found = None
    try:
        recording._check_launches(recorded)
    except FaultDetected as error:
        found = error.fault
    assert found == fault


def test_the_digest_is_of_text_kernel_and_options() -> None:
    ir = KernelIr("k:1", "module {}", {"num_warps": 4})
    others = [KernelIr("k:2", ir.text, ir.options), KernelIr("k:1", "", ir.options), KernelIr("k:1", ir.text, {})]
    assert len({digest((each,)) for each in [ir, *others]}) == 4
    assert digest((ir,)) == digest((KernelIr("k:1", "module {}", {"num_warps": 4}),))
