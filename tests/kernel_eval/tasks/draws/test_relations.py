"""Rows that stand to others as random ones never do, of one input, between two, to parameters and of a label."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cosine_similarity

from weir.kernel_eval.tasks.draws.relations import Relation, with_clusters, with_related_rows
from weir.kernel_eval.tasks.input_variants import Draw, Variant
from weir.kernel_eval.tasks.reference import Reference

ALL = list(Relation)


def kinds_of(value: torch.Tensor, others: torch.Tensor) -> list[Relation]:
    """How each row stands to the one of the same number, for those that stand to it in some way."""
    found = []
    for row, other in zip(value, others, strict=True):
        cosine = float(cosine_similarity(row, other, 0))
        if torch.equal(row, other):
            found.append(Relation.EQUAL)
        elif cosine < -0.99:
            found.append(Relation.OPPOSITE)
        elif cosine > 0.99:
            found.append(Relation.NEAR if 0.95 < float(row.norm() / other.norm()) < 1.05 else Relation.ALONG)
    return found


def test_rows_stand_in_each_relation_to_those_of_their_number() -> None:
    torch.manual_seed(1)
    value, other = torch.randn(32, 16), torch.randn(32, 16)
    changed = with_related_rows(value, other, ALL)
    assert sorted(kinds_of(changed, other)) == sorted([*ALL, Relation.OPPOSITE])
    assert int((changed != value).any(-1).sum()) == 8


def test_rows_stand_to_those_that_their_labels_name() -> None:
    torch.manual_seed(1)
    value, centres, labels = torch.randn(8, 16), torch.randn(100, 16), torch.randint(100, (8,))
    labels[0] = -1  # none
    changed = with_related_rows(value, centres, [Relation.OPPOSITE], labels)
    own = cosine_similarity(changed, centres[labels], -1) < -0.99
    to_any = (cosine_similarity(changed[:, None], centres, -1) < -0.99).any(-1)
    assert int(own.sum()) >= 1
    assert int(to_any.sum()) == 2


def test_rows_stand_to_others_of_their_own_which_stay() -> None:
    torch.manual_seed(1)
    value = torch.randn(2, 8, 16)
    changed = with_related_rows(value, value, [Relation.EQUAL])
    rows, before = changed.view(16, 16), value.view(16, 16)
    moved = (rows != before).any(-1)
    assert int(moved.sum()) == 4
    for row in rows[moved]:
        assert bool((row == before[~moved]).all(-1).any())


def test_few_rows_do_not_stand_to_each_other() -> None:
    value = torch.randn(3, 16)
    assert with_related_rows(value, value, ALL) is value


def test_the_rows_of_some_labels_are_near_each_other() -> None:
    torch.manual_seed(1)
    labels = torch.arange(32) % 4
    changed = with_clusters(torch.randn(32, 16), labels)
    similar = cosine_similarity(changed[:, None], changed, -1) > 0.98
    alike = [bool(similar[labels == label][:, labels == label].all()) for label in range(4)]
    assert sorted(alike) == [False, False, True, True]
    assert not bool(similar[labels[:, None] != labels].any())


def test_no_cluster_is_near_rows_of_other_labels() -> None:
    torch.manual_seed(2)
    labels = torch.arange(32) // 4
    value = torch.randn(32, 16)
    value[4:8] = value[:4]  # near them until they move together
    for _ in range(20):
        changed = with_clusters(value, labels)
        has_moved = (changed != value).any(-1)
        assert int(has_moved.sum()) == 16
        similar = cosine_similarity(changed[:, None], changed, -1) > 0.98
        assert not bool(similar[has_moved][:, ~has_moved].any())
    assert torch.equal(with_clusters(value, torch.arange(32)), value)  # each label has one row


TASK = """
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(10, SIZE))
    def forward(self, x, y, label):
        return FUNCTION

def get_inputs():
    return [torch.randn(16, 32), torch.randn(16, 32), torch.randint(0, 10, (16,))]
"""


def task_of(function: str) -> str:
    return TASK.replace("FUNCTION", function).replace("SIZE", "32" if "weight" in function else "7")


AGREE = "torch.where(x.argmax(-1) == y.argmax(-1), x.amax(-1), -1.0)"
OPPOSITE = "torch.where(F.cosine_similarity(x, self.weight[label], -1) < -0.9, -1.0, x[:, 0])"
EASY = "F.relu((x - y).norm(dim=-1) - (x - y.roll(1, 0)).norm(dim=-1) + 0.2)"


@pytest.mark.parametrize(
    ("function", "is_asked"),
    [(AGREE, True), (EASY, True), ("x @ y.t()", False), ("torch.where(x > y, x, y)", False)],
)
def test_tasks_of_which_rows_meet_and_that_turn_somewhere_get_such_a_call(function: str, is_asked: bool) -> None:
    reference = Reference(task_of(function), 30.0)
    assert (Draw.RELATED in reference.more_draws(reference.build([], 1))) == is_asked


@pytest.mark.parametrize(
    ("function", "what"), [(AGREE, lambda out: out == -1), (OPPOSITE, lambda out: out == -1), (EASY, lambda o: o == 0)]
)
def test_a_task_goes_both_ways_for_them(function: str, what: object) -> None:
    reference = Reference(task_of(function), 30.0)
    model = reference.build([], 1)
    for seed in range(40):  # rare draws count, too
        _, expected, drawn = reference.question(model, seed, Variant(Draw.RELATED))
        assert drawn.draw is Draw.RELATED
        ways = what(expected.outputs[0])  # type: ignore[operator]
        assert bool(ways.any())
        assert not bool(ways.all())
