"""What an earlier call left is made anew by its steps, but for what came from its inputs."""

from __future__ import annotations

from weir.kernel_eval.ipc.messages import KernelIr, Recorded
from weir.kernel_eval.ipc.trace import Launch, Many, Operator, Place, Plain, Storage, Trace
from weir.kernel_eval.recording.kept_storages import with_kept


def place(storage: int) -> Place:
    return Place(storage, "float32", (4,), (1,), 0)


def launch(ir: int, *storages: int) -> Launch:
    return Launch("k", 1, (1,), {}, {}, ir, tuple(map(place, storages)))


def made(name: str, result: int, *read: int) -> Operator:
    return Operator(name, (Many("list", tuple(map(place, read))),), {"fill": Plain(1)}, (place(result),))


FIRST = Recorded(
    (),
    Trace(
        (
            *(Storage("input", 0, 16), Storage("state", 3, 16)),
            *(Storage("fresh", 0, 16), Storage("fresh", 0, 16), Storage("fresh", 0, 16)),
        ),
        (made("aten.arange", 2), made("aten.cat", 3, 2), launch(0, 1, 3), launch(1, 0, 3, 4)),
        (place(4),),
    ),
    (KernelIr("prepare:1", "prepare", {}), KernelIr("use:1", "use", {})),
)
SECOND = Recorded(
    (),
    Trace(
        (Storage("input", 0, 16), Storage("earlier", 0, 16), Storage("fresh", 0, 16)),
        (launch(0, 0, 1, 2),),
        (place(2),),
    ),
    (KernelIr("use:1", "use", {}),),
)


def test_the_steps_that_made_it_come_first_with_their_storages_and_their_ir() -> None:
    whole = with_kept(SECOND, {1: (0, 3)}, [FIRST])
    assert [storage.kind for storage in whole.trace.storages] == ["input", "remade", "fresh", "state", "fresh"]
    assert whole.trace.storages[3].index == 3
    assert whole.trace.steps == (
        *(made("aten.arange", 4), made("aten.cat", 1, 4), launch(1, 3, 1)),
        launch(0, 0, 1, 2),
    )
    assert [ir.kernel for ir in whole.irs] == ["use:1", "prepare:1"]
    assert whole.trace.outputs == SECOND.trace.outputs


def test_what_came_from_inputs_of_the_other_call_is_nobodys() -> None:
    whole = with_kept(SECOND, {1: (0, 4)}, [FIRST])
    assert (whole.trace.steps, whole.irs) == (SECOND.trace.steps, SECOND.irs)
    assert whole.trace.storages[1].kind == "remade"
    assert with_kept(SECOND, {1: (0, 0)}, [FIRST]) == SECOND, "an input of the other call that the model kept"


def test_what_was_made_anew_once_is_so_again() -> None:
    second = with_kept(SECOND, {1: (0, 3)}, [FIRST])
    third = with_kept(SECOND, {1: (1, 1)}, [FIRST, second])
    assert third == second


def test_nothing_is_changed_where_nothing_is_kept() -> None:
    assert with_kept(SECOND, {}, [FIRST]) == SECOND
