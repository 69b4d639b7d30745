"""Places of a tensor where a draw puts other values. At least one of each is certain: none is left to chance.

A place that each element has by chance may be none's: of 64 elements, 1 in 16 each, that happens in 1 of 62 draws.
Draws use torch's generator.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_FEW = 1 << 16  # indices, of which each is drawn once before one is drawn again
_MOST = 1 << 20  # elements that say what is usual
_PIECE = 8  # times a share: pieces of so many elements hold one place at least


def distinct(count: int, num_elements: int) -> torch.Tensor:
    """Places, one in each of `count` pieces of equal size; `count` is at most the number of elements; (count,)."""
    starts = torch.arange(count + 1) * num_elements // max(1, count)
    widths = starts.diff()
    return starts[:-1] + torch.randint(1 << 62, (count,)) % widths


def seldom(count: int, size: int) -> torch.Tensor:
    """Indices of a dimension: its last, its first, those beside powers of two from its ends, any; (count,).

    One alone is the last half of the time, and the first a quarter of it.
    """
    powers = 2 ** torch.arange(1, max(2, size.bit_length()))
    beside = torch.cat([powers, powers - 1, size - 1 - powers])
    beside = beside[(beside > 0) & (beside < size - 1)]
    each = torch.randperm(size)[:count] if size <= _FEW else torch.randint(size, (count,))
    others = torch.cat([beside[torch.randperm(len(beside))][: count // 2], each, torch.randint(size, (count,))])
    if count == 1 and bool(torch.randint(2, ())):
        return others[:1] if bool(torch.randint(2, ())) else torch.zeros(1, dtype=torch.int64)
    return torch.cat([torch.tensor([size - 1, 0]), others])[:count]


def extremes(value: torch.Tensor) -> torch.Tensor:
    """The places of the least and the largest value, in their order; (1,) or (2,)."""
    return torch.tensor(sorted({int(value.argmin()), int(value.argmax())}))


def magnitudes(value: torch.Tensor) -> torch.Tensor:
    """Those of the values that are finite and not zero, of some of them if they are many; (n,) float64."""
    flat = value.reshape(-1)[:: max(1, value.numel() // _MOST)].double().abs()
    return flat[(flat > 0) & flat.isfinite()]


def some(like: torch.Tensor, share: int) -> torch.Tensor:
    """A mask of the shape of `like`: one of `share` elements, and at least one in each piece of a few shares."""
    mask = torch.rand(like.shape, device=like.device) < 1 / share
    count = min(like.numel(), -(-like.numel() // (_PIECE * share)))
    mask.view(-1)[distinct(count, like.numel()).to(like.device)] = True
    return mask


def any_of(points: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    """Any of the points at each place, in no order, and each of them somewhere; shape and dtype of `like`."""
    values = torch.tensor(points, dtype=like.dtype, device=like.device)
    drawn = values[torch.randint(len(values), like.shape, device=like.device)]
    count = min(len(values), drawn.numel())
    drawn.view(-1)[distinct(count, drawn.numel()).to(like.device)] = values[torch.randperm(len(values))[:count]]
    return drawn


def holding(value: torch.Tensor, points: Sequence[float], share: int) -> torch.Tensor:
    """The value with any of the points at one of `share` places, each of them somewhere, and one place as it was.

    The largest and the least value stay, where there is room. A tensor that is too small for all points has some of
    them, others in the next draw.
    """
    if value.numel() < 2 or not points:
        return value
    changed = torch.where(torch.rand(value.shape, device=value.device) < 1 / share, any_of(points, value), value)
    kept = extremes(value)
    if value.numel() <= len(points) + len(kept):
        kept = kept[:0]
    num_places = value.numel() - len(kept)
    count = min(max(len(points), value.numel() // (_PIECE * share)), num_places - 1)
    given = torch.tensor(points, dtype=value.dtype)[torch.randperm(count) % len(points)]
    if count < len(points):
        given = torch.tensor(points, dtype=value.dtype)[torch.randperm(len(points))[:count]]
    at = distinct(count + 1, num_places)
    for place in kept.tolist():
        at += at >= place
    flat, kept = changed.contiguous().view(-1), torch.cat([at[-1:], kept]).to(value.device)
    flat[at[:-1].to(value.device)] = given.to(value.device)
    flat[kept] = value.reshape(-1)[kept]
    return flat.view(value.shape)
