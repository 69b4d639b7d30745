"""Records with other configurations of autotuned kernels."""

from __future__ import annotations

from weir.kernel_eval.ipc.messages import KernelIr, Recorded
from weir.kernel_eval.ipc.trace import Launch, Operator, Place, Storage, Trace
from weir.kernel_eval.judge.source.configurations import first_way, other_ways

X, OUT, ELSEWHERE = (Place(number, "float32", (8,), (1,), 0) for number in range(3))


def launch(ir: int, out: Place = OUT, grid: int = 1, others: tuple[Launch, ...] = ()) -> Launch:
    return Launch("k", 1, (grid,), {}, {}, ir, (X, out), others)


def record(*steps: Launch | Operator) -> Recorded:
    irs = tuple(KernelIr("k:1", text, {"num_warps": warps}) for text, warps in (("a", 4), ("a", 8), ("b", 4), ("c", 4)))
    storages = (Storage("input", 0, 32), Storage("fresh", 0, 32), Storage("fresh", 0, 32))
    return Recorded((), Trace(storages, steps, (OUT,)), irs)


def texts(way: Recorded) -> list[str]:
    return [way.irs[one.ir].text for one in way.trace.launches if one.ir is not None]


def test_each_configuration_that_computes_otherwise_is_a_record_of_its_own() -> None:
    fill = Operator("aten.zero_.default", (OUT,), {}, (OUT,))
    tuned = launch(0, others=(launch(1), launch(2), launch(0, grid=2), launch(3, out=ELSEWHERE)))
    recorded = record(fill, tuned, launch(3))
    assert texts(first_way(recorded)) == ["a", "c"]
    assert [texts(way) for way in other_ways(recorded)] == [["b", "c"], ["a", "c"]]
    assert [len(way.irs) for way in other_ways(recorded)] == [2, 2]
    assert all(way.trace.steps[0] == fill and not way.trace.launches[0].alternatives for way in other_ways(recorded))


def test_a_record_without_autotuned_kernels_has_one_way() -> None:
    recorded = record(launch(2), launch(0))
    assert texts(first_way(recorded)) == ["b", "a"]
    assert other_ways(recorded) == []
