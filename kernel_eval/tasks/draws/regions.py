"""Regions of inputs that are of one kind: images below zero, rows far from it, states that are held.

Other draws have rows of one sign, but an image or a plane has many rows, so that none is below zero as a whole: a
maximum that starts at zero would be right. Nor is a gate open at each of a hundred steps, so that a recurrence could
begin at the last ones. Draws use torch's generator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from weir.kernel_eval.tasks.draws.places import magnitudes

_OFFSET, _LEAST = 6.0, 0.1  # times its spread: where a region of one sign lies; of that, its least magnitude
_MANY = 8  # pieces, of which two change; of fewer one
_FAR = 15.0, 30.0  # where exponentials are nearly zero, and gates open or closed
_LEAST_ROWS = 16  # of a tensor, two of which are far from zero
_LEAST_HELD = 8  # steps of a state that is held
_LEAST_PIECES = 4  # of which one is held
_NOT_HELD = 4  # one of so many steps at least comes before the others
_USUAL = 1e3  # a piece so many times smaller than others is small on purpose, and stays


def with_pieces_of_one_sign(value: torch.Tensor, signs: tuple[int, ...] = (-1, 1)) -> torch.Tensor:
    """Some pieces have values of one sign only: images, planes of images, whatever is of two dimensions or more.

    Of each kind one is below zero, and of many another one above; `signs`: those that the task takes.
    """
    changed = value.clone(memory_format=torch.contiguous_format)
    size = _size(value)
    for leading in range(1, value.dim() - 1):
        pieces = changed.flatten(0, leading - 1)
        if pieces[0].numel() < 2 or len(pieces) < 2:
            continue
        for sign, at in zip(signs if len(pieces) >= _MANY else signs[:1], _common(pieces), strict=False):
            drawn = (1 + torch.randn_like(pieces[at]) / _OFFSET).clamp_min_(_LEAST)
            pieces[at] = drawn.mul_(sign * size)
    return changed


def with_far_rows(value: torch.Tensor, signs: tuple[int, ...] = (-1, 1)) -> torch.Tensor:
    """One row along the last dimension is far below zero everywhere, and one far above it; `signs` as above."""
    changed = value.clone(memory_format=torch.contiguous_format)
    rows = changed.view(-1, value.shape[-1])
    if len(rows) < _LEAST_ROWS:
        return value
    for sign, at in zip(signs, _common(rows), strict=False):
        level = _FAR[0] + (_FAR[1] - _FAR[0]) * float(torch.rand(()))
        rows[at] = sign * level + torch.randn_like(rows[at])
    return changed


def with_held_states(value: torch.Tensor) -> torch.Tensor:
    """One piece along each dimension but the last has nearly the same vector from some place on, far from zero.

    Where the dimension is time, gates stay open or closed, so that the first steps count until the end.
    """
    if value.dim() < 3 or value.shape[-1] < 2:
        return value
    changed = value.clone(memory_format=torch.contiguous_format)
    held = torch.zeros_like(changed, dtype=torch.bool)
    for dimension in range(value.dim() - 1):
        steps = value.shape[dimension]
        pieces, taken = changed.movedim(dimension, -2), held.movedim(dimension, -2)
        others = pieces.shape[:-2]
        if steps < _LEAST_HELD or others.numel() < _LEAST_PIECES:
            continue
        first = 1 + int(torch.randint(steps // _NOT_HELD, ()))
        for number in _common(pieces.reshape(-1, steps, value.shape[-1])):
            piece, of_piece = pieces, taken
            for at in torch.unravel_index(torch.tensor(number), others):
                piece, of_piece = piece[int(at)], of_piece[int(at)]
            piece, of_piece = piece[first:], of_piece[first:]
            if bool(of_piece.any()) or int((piece == 0).sum()) * _NOT_HELD > piece.numel():
                continue
            far = _FAR[0] + (_FAR[1] - _FAR[0]) * torch.rand_like(piece[:1])
            signs = 1 - 2 * torch.randint(2, far.shape, device=far.device)
            piece.copy_(far * signs.to(far) + torch.randn_like(piece))
            of_piece |= True
            break
    return changed


def keeping_regions(change: Callable[[torch.Tensor], torch.Tensor], value: torch.Tensor) -> torch.Tensor:
    """A change of a tensor, but for its pieces of one sign, if fewer than half of the pieces are."""
    changed = change(value)
    if changed is value:
        return value
    for leading in range(1, value.dim() - 1):
        before, after = value.reshape(-1, *value.shape[leading:]), changed.reshape(-1, *value.shape[leading:])
        flat = before.flatten(1)
        kept = ((flat > 0).all(-1) | (flat < 0).all(-1)).nonzero().view(-1)
        if 0 < 2 * len(kept) < len(before):
            after[kept] = before[kept].to(after)
            changed = after.view(value.shape)
    return changed


def _common(pieces: torch.Tensor) -> Iterator[int]:
    """Pieces along the first dimension, by number and in no order, that hold values of both signs and usual size."""
    flat = pieces.flatten(1)
    sizes = flat.abs().amax(-1).float()
    above = sizes[sizes > 0]
    if not above.numel() or not bool(torch.isfinite(sizes).all()):
        return
    fit = (sizes > above.median() / _USUAL) & ((flat > 0).any(-1) & (flat < 0).any(-1) | (flat >= 0).all())
    numbers = fit.nonzero().view(-1).cpu()
    yield from numbers[torch.randperm(len(numbers))].tolist()


def _size(value: torch.Tensor) -> float:
    """The magnitude of a region of one sign: it counts beside large values of others, and is larger than usual ones."""
    found = magnitudes(value)
    return max(float(found.square().mean().sqrt()), _OFFSET * float(found.median())) if found.numel() else 1.0
