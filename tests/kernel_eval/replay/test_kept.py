"""Memory that a model keeps between calls: tables stay as they are, what a call changes is as calls leave it."""

from __future__ import annotations

import torch

from weir.kernel_eval.ipc.trace import Operator, Place, Plain, Storage, Trace
from weir.kernel_eval.replay.kept import Kept

PLACE = Place(1, "float32", (16,), (1,), 0)
STEPS = tuple(Operator("aten.fill_.Scalar", (PLACE, Plain(number)), {}, (PLACE,)) for number in range(3))
TRACE = Trace((Storage("input", 0, 64), Storage("remade", 0, 64)), STEPS, (), 1)


def storages(number: float) -> list[torch.Tensor]:
    return [torch.full((16,), each).view(torch.uint8).clone() for each in (7.0, number)]


def test_what_a_call_leaves_as_it_was_is_a_table() -> None:
    kept, now = Kept(TRACE), storages(1.0)
    for position in range(3):
        kept.begin_step(position, now)
    now[0].fill_(0)
    assert kept.left(now, {}) == {}


def test_what_a_call_changes_is_left_at_other_places_and_found_by_its_own_steps() -> None:
    kept, now = Kept(TRACE), storages(1.0)
    for position in range(2):
        kept.begin_step(position, now)
    now[1].view(torch.float32).copy_(torch.arange(16.0))
    earlier: dict[int, torch.Tensor] = {}
    (content,) = (left := kept.left(now, earlier)).values()
    values = content.view(torch.float32)
    assert left.keys() == {1}
    assert torch.equal(values.sort().values, torch.arange(16.0))
    assert not torch.equal(values, torch.arange(16.0))
    again, fresh = Kept(TRACE, left), storages(1.0)
    again.begin_step(0, fresh)
    assert bool((fresh[1].view(torch.float32) == 1).all()), "as the first steps begin"
    again.begin_step(1, fresh)
    assert torch.equal(fresh[1], content)
    assert again.left(fresh, {}) == {}
    assert torch.equal(earlier[1], now[1])
    now[1].view(torch.float32).add_(100)
    (content,) = kept.left(now, earlier).values()
    assert torch.equal(content.view(torch.float32), torch.arange(16.0)), "as the play before left it"
