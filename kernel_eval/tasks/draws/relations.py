"""Rows that stand to others as random ones never do: equal, opposite, along one line, near, in clusters of a label.

Random rows are far from each other and at right angles, so that what a task does with other ones (a margin between
angles, a triplet that is easy, two models that agree) counts nowhere. But for equal ones none is exactly as another:
the angle between two that are is anything that a rounding makes of it. Draws use torch's generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import torch

_SHARE = 4  # one of so many rows stands to another
_LEAST_ROWS = 4  # of a tensor whose rows stand to each other
_OFF = 0.05  # of a row's scale: how far a near one is off
_DIGITS = 0.6  # before and after the point, at most, of how many times as long one along a line is
_CLUSTERED = 2  # one of so many labels


class Relation(StrEnum):
    """How a row stands to another."""

    EQUAL = "equal"
    OPPOSITE = "opposite"  # nearly
    ALONG = "along"  # nearly, times a positive number
    NEAR = "near"


def with_related_rows(
    value: torch.Tensor, source: torch.Tensor, relations: Sequence[Relation], labels: torch.Tensor | None = None
) -> torch.Tensor:
    """Some rows stand to rows of `source`, a tensor of the same width, in one of the relations each.

    Half of them, and all opposite ones, stand to the row of the same number, if `source` has as many, or else to the
    one that `labels` names, which has one for each row; the others to rows that none of these stands to, as far as
    numbers tell. `source` may be the value itself, of which the rows that others stand to stay.
    """
    width = value.shape[-1]
    rows = value.clone(memory_format=torch.contiguous_format).view(-1, width)
    others = source.detach().reshape(-1, width).to(rows)
    if source is value and len(rows) < _LEAST_ROWS:
        return value
    order = torch.randperm(len(rows))
    count = max(1, len(rows) // _SHARE, min(len(relations), len(rows) // 2))
    chosen = order[:count]
    kinds = (torch.arange(count) + int(torch.randint(len(relations), ()))) % len(relations)
    is_opposite = torch.tensor([relation is Relation.OPPOSITE for relation in relations])[kinds]
    if source is value:
        of = order[count : 2 * count]
    else:
        has_pairs = len(others) == len(rows)
        left = order[count:] if has_pairs and len(rows) > count else torch.arange(len(others))
        of = left[torch.randint(len(left), (count,))]
        own = chosen if has_pairs else of if labels is None else labels.reshape(-1).cpu()[chosen]
        takes = (torch.arange(count) // len(relations) % 2 == 0) | is_opposite
        of = torch.where(takes & (own >= 0) & (own < len(others)), own, of)
    for number, relation in enumerate(relations):
        at = kinds == number
        rows[chosen[at].to(rows.device)] = _standing(others[of[at].to(rows.device)], relation)
    return rows.view(value.shape)


def _standing(rows: torch.Tensor, relation: Relation) -> torch.Tensor:
    if relation is Relation.EQUAL:
        return rows
    if relation is Relation.ALONG:
        digits = (torch.rand(len(rows), 1, device=rows.device) * 2 - 1) * _DIGITS
        return _near(rows) * (10.0**digits).to(rows)
    return -_near(rows) if relation is Relation.OPPOSITE else _near(rows)


def _near(rows: torch.Tensor) -> torch.Tensor:
    scale = rows.float().square().mean(-1, keepdim=True).sqrt().to(rows)
    return rows + _OFF * scale * torch.randn_like(rows)


def with_clusters(value: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The rows of some labels that several have lie near each other, in the middle of where they were.

    Not near one of them, which rows of other labels may be near, too. `labels`: one for each row.
    """
    rows = value.clone(memory_format=torch.contiguous_format).view(-1, value.shape[-1])
    flat = labels.reshape(-1).to(rows.device)
    found, counts = torch.unique(flat, return_counts=True)
    several = found[counts > 1]
    for label in several[torch.randperm(len(several))[: -(-len(several) // _CLUSTERED)].to(rows.device)]:
        at = (flat == label).nonzero().squeeze(1)
        middle, length = rows[at].mean(0, keepdim=True), rows[at[:1]].norm()
        rows[at] = _near((middle * (length / middle.norm())).nan_to_num(0.0, 0.0, 0.0).expand(len(at), -1))
    return rows.view(value.shape)
