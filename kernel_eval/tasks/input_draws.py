"""Draws the values of a task's inputs anew, from distributions that need all of the function; see `input_variants.py`.

A drawn tensor keeps the shape, strides and dtype of the declared one, and what the task may rely on: exact zeros, rows
that sum to one, are in order or hold each value twice, symmetry, and values from a small set. Integers and booleans are
drawn anew only where it is known what the task's own draws of them have in common (`integer_draws.py`). Draws use
torch's generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from weir.kernel_eval.tasks.draws.edge_points import at_edges, large
from weir.kernel_eval.tasks.draws.equal_values import in_form_of
from weir.kernel_eval.tasks.draws.integer_draws import Integers, redrawn_integers
from weir.kernel_eval.tasks.draws.places import holding, some
from weir.kernel_eval.tasks.input_variants import OF_OWN, Draw

_MIN_SLICES = 9  # one for each kind that most draws hold
_SPECIAL_SHARE = 32  # one of so many elements is each special value
_SPIKES_SHARE = 64
_FAR = 180.0  # and up to twice as far: exp() overflows beyond 88, of half of it too
_FEW_VALUES = 16
_ONES_TOLERANCE = 1e-3
_PIECE = 1 << 20  # elements that are looked at together
_SAMPLED = 4096  # elements that are enough to see that values are many


def redrawn(
    inputs: list[Any], draw: Draw, integers: Sequence[Integers] = (), numbers: tuple[float, ...] = ()
) -> list[Any]:
    """The inputs of one call with its tensors drawn anew; lists and tuples within are followed.

    `integers`: what is known of each tensor of integers or booleans, in their order; none of them: they stay.
    `numbers`: what the task gives to its operators, which a draw of edge points has too.
    """
    known = iter(integers)
    return [_value(value, draw, known, numbers) for value in inputs]


def is_drawn_as_integers(value: Any) -> bool:
    """Whether a value is a tensor of integers or booleans."""
    return isinstance(value, torch.Tensor) and not value.is_floating_point() and not value.is_complex()


def _value(value: Any, draw: Draw, known: Iterator[Integers], numbers: tuple[float, ...]) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_value(item, draw, known, numbers) for item in value)
    if is_drawn_as_integers(value):
        seen = next(known, None)
        return value if seen is None else redrawn_integers(value, seen)
    if not isinstance(value, torch.Tensor) or value.numel() == 0 or draw in OF_OWN:
        return value
    if value.is_complex():
        return _complex(value, draw, numbers)
    drawn = in_form_of(_drawn(value, draw, numbers), value)
    if drawn.dtype is value.dtype and drawn.stride() == value.stride() and drawn.data_ptr() != value.data_ptr():
        return drawn
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(drawn)


def _complex(declared: torch.Tensor, draw: Draw, numbers: tuple[float, ...]) -> torch.Tensor:
    """New real and imaginary parts; what is its own adjoint stays."""
    plain = declared.resolve_conj()
    if plain.dim() >= 2 and plain.shape[-1] == plain.shape[-2] > 1 and torch.equal(plain, plain.mH):
        return declared
    parts = [_drawn(part.contiguous(), draw, numbers).to(part.dtype) for part in (plain.real, plain.imag)]
    made = torch.empty_strided(declared.shape, declared.stride(), dtype=declared.dtype, device=declared.device)
    return made.copy_(torch.complex(*parts))


def _drawn(declared: torch.Tensor, draw: Draw, numbers: tuple[float, ...]) -> torch.Tensor:
    """New values for a tensor; shape and device of `declared`, float32 or float64."""
    wide = torch.float64 if declared.dtype is torch.float64 else torch.float32
    values = declared.to(wide)
    if has_few_values(values):  # labels and masks, also where all else is negated
        return values
    if draw is Draw.NEGATED:
        return -values
    if sums_to_one(values):
        return torch.softmax(torch.randn_like(values) * 3, dim=-1)
    if draw is Draw.SCALED:
        parts = slices(values)
        factors = torch.exp2(torch.rand(len(parts), 1, dtype=wide, device=values.device) * 4 - 2)
        return _keeping_structure(values, unsliced(parts * factors, values))
    of = _Of(_unit(declared), declared.dtype, numbers)
    if draw in _SPECIALS:
        return _with_specials(_keeping_structure(values, _by_draw(values, Draw.HARD, of)), _SPECIALS[draw])
    return _keeping_structure(values, _by_draw(values, draw, of))


class _Of(NamedTuple):
    """What a draw takes from the task: the scale that it is relative to, the dtype, what operators are given."""

    unit: float
    dtype: torch.dtype
    numbers: tuple[float, ...]


def _unit(declared: torch.Tensor) -> float:
    """The scale that draws are relative to: 1, or the declared one where it is far from 1 or precision is low."""
    squares = sum(float(piece.double().square_().sum()) for piece in torch.split(declared.reshape(-1), _PIECE))
    rms = math.sqrt(squares / declared.numel())
    if not math.isfinite(rms) or rms == 0:
        return 1.0
    half = declared.dtype in (torch.float16, torch.bfloat16)
    return rms if half or not 0.05 <= rms <= 20 else 1.0


def _by_draw(values: torch.Tensor, draw: Draw, of: _Of) -> torch.Tensor:
    if draw is Draw.POSITIVE:
        return _by_draw(values, Draw.MIXED, of).abs().clamp_min(_LEAST)
    if draw is Draw.NEGATIVE:
        return -_by_draw(values, Draw.POSITIVE, of)
    if draw is Draw.AT_EDGES:
        return at_edges(values, of.dtype, of.numbers)
    if draw not in _SLICED:
        return _KINDS[draw](values).mul_(1.0 if draw in _OF_ONE_SCALE else of.unit)
    kinds = [Draw.DECLARED, *_SLICED[draw]]
    parts = slices(values, max(_MIN_SLICES, len(kinds)))
    # In no order that repeats: a part of the slices has other shares of the kinds than the whole.
    num_whole = values.numel() // parts.shape[1]  # the last slice may be shorter: no kind is in it alone
    places = torch.cat([torch.randperm(num_whole), torch.randint(len(kinds), (len(parts) - num_whole,))])
    of_slice = (places % len(kinds)).to(values.device)
    for number, kind in enumerate(kinds):
        chosen = of_slice == number
        if kind is not Draw.DECLARED and bool(chosen.any()):
            drawn = _by_draw(parts[chosen], kind, of)
            parts[chosen] = _turned(drawn) if kind is Draw.OFFSET else drawn
    return unsliced(parts, values)


def _turned(parts: torch.Tensor) -> torch.Tensor:
    """Every other slice times minus one."""
    signs = 1 - 2 * (torch.arange(len(parts), device=parts.device) % 2)
    return parts * signs.to(parts.dtype)[:, None]


def slices(values: torch.Tensor, least: int = _MIN_SLICES) -> torch.Tensor:
    """A copy, shape (slices, their elements): one a leading index, or segments if these are few; padded with zeros."""
    count = 1
    for size in values.shape:
        if count >= least:
            break
        count *= size
    num_elements = values.numel()
    if count == num_elements or count < least:
        count = min(num_elements, least)
    length = num_elements // count
    count = math.ceil(num_elements / length)
    flat = values.reshape(-1)
    padded = torch.cat([flat, flat.new_zeros(count * length - num_elements)])
    return padded.view(count, length)


def unsliced(parts: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A tensor of the shape of `like`, from its slices."""
    return parts.reshape(-1)[: like.numel()].view(like.shape)


def _wide(like: torch.Tensor) -> torch.Tensor:
    """Normals with a scale for each leading index, 30 to 100, and far values: exponentials overflow in each row."""
    leading = (*like.shape[:1], *(1 for _ in like.shape[1:]))
    scale = 10.0 ** (1.5 + 0.5 * torch.rand(leading, dtype=like.dtype, device=like.device))
    values = (torch.randn_like(like) * scale).contiguous()
    _put_far_values(values.view(len(like) if like.dim() > 1 else 1, -1))
    return values


def _put_far_values(rows: torch.Tensor) -> None:
    """One of either sign in each row, which chance alone would leave out; rows of one element take turns."""
    num_rows, width = rows.shape
    far = (1 + torch.rand(num_rows, 2)) * _FAR
    if width < 2:
        far = far[:, :1] * (1 - torch.arange(num_rows)[:, None] % 2 * 2)
        at = torch.zeros(num_rows, 1, dtype=torch.int64)
    else:
        sign = torch.randint(2, (num_rows, 1)) * 2 - 1
        far *= torch.cat([sign, -sign], 1)
        halves = [torch.randint(width // 2, (num_rows, 1)), torch.randint(width // 2, width, (num_rows, 1))]
        at = torch.cat(halves, 1)
    rows.scatter_(1, at.to(rows.device), far.to(rows))


def _near_one(like: torch.Tensor) -> torch.Tensor:
    return 1.0 + 0.02 * torch.randn_like(like)


def _sparse(like: torch.Tensor) -> torch.Tensor:
    return torch.where(some(like, _SPIKES_SHARE), torch.randn_like(like) * 20, torch.randn_like(like) * 0.05)


def _offset(like: torch.Tensor) -> torch.Tensor:
    return torch.randn_like(like) + (6.0 if float(torch.rand(())) < 0.5 else -6.0)


def _signed(like: torch.Tensor) -> torch.Tensor:
    """Each row of one sign, in turns, and of its own scale, 1 to 100; one row alone is below zero."""
    rows = torch.randn(like.shape, dtype=like.dtype, device=like.device).abs_().add_(0.5)
    rows = rows.view(-1, like.shape[-1] if like.dim() else 1)
    turn = torch.arange(len(rows)) + (int(torch.randint(2, ())) if len(rows) > 1 else 0)
    scale = 10.0 ** (2 * torch.rand(len(rows), 1))
    return rows.mul_(((turn % 2 * 2 - 1)[:, None] * scale).to(rows)).view(like.shape)


def _tiny(like: torch.Tensor) -> torch.Tensor:
    scale: float = 10.0 ** (-2.5 - float(torch.rand(())) / 2)
    return torch.randn_like(like) * scale


def _vanishing(like: torch.Tensor) -> torch.Tensor:
    scale: float = 10.0 ** (-11 - 3 * float(torch.rand(())))
    return torch.randn_like(like) * scale


def _above(like: torch.Tensor) -> torch.Tensor:
    scale: float = 10.0 ** float(torch.rand(()))
    return (torch.randn_like(like).abs_() + 0.5) * scale


def _huge(like: torch.Tensor) -> torch.Tensor:
    scale: float = 10.0 ** (3 + float(torch.rand(())))
    return torch.randn_like(like) * scale


def _exact(like: torch.Tensor) -> torch.Tensor:
    return torch.randint(-3, 4, like.shape, device=like.device).to(like.dtype)


def _in_unit(like: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(torch.randn_like(like) * 4)


def _in_bounds(like: torch.Tensor) -> torch.Tensor:
    return _in_unit(like) * 2 - 1


_KINDS: dict[Draw, Callable[[torch.Tensor], torch.Tensor]] = {
    Draw.NORMAL: torch.randn_like,
    Draw.WIDE: _wide,
    Draw.NEAR_ONE: _near_one,
    Draw.SPARSE: _sparse,
    Draw.OFFSET: _offset,
    Draw.SIGNED: _signed,
    Draw.TINY: _tiny,
    Draw.VANISHING: _vanishing,
    Draw.ABOVE: _above,
    Draw.BELOW: lambda like: -_above(like),
    Draw.HUGE: _huge,
    Draw.EXACT: _exact,
    Draw.UNIT: _in_unit,
    Draw.BOUNDED: _in_bounds,
    Draw.LARGE: large,
}
_OF_ONE_SCALE = frozenset(
    {Draw.NEAR_ONE, Draw.EXACT, Draw.LARGE, Draw.UNIT, Draw.BOUNDED}
)  # whatever the task's own draw has
_MILD_KINDS = (Draw.NORMAL, Draw.NEAR_ONE, Draw.SPARSE, Draw.TINY)
_MIXED_KINDS = (*_MILD_KINDS, Draw.WIDE, Draw.OFFSET)
_SLICED = {
    Draw.MILD: _MILD_KINDS,
    Draw.MIXED: _MIXED_KINDS,
    Draw.HARD: (*_MIXED_KINDS, Draw.EXACT),
    Draw.EDGES: (*_MIXED_KINDS, Draw.EXACT, Draw.AT_EDGES, Draw.LARGE),
    Draw.POINTS: (*_MIXED_KINDS, Draw.EXACT, Draw.AT_EDGES),
    Draw.BEYOND: (*_MIXED_KINDS, Draw.EXACT, Draw.HUGE),
}
_LEAST = 1e-3  # of a positive draw
_SPECIALS = {
    Draw.SPECIAL: (math.nan, math.inf, -math.inf, -0.0),
    Draw.NANS: (math.nan,),
    Draw.INFINITE: (math.inf, -math.inf),
}


def with_specials(draw: Draw, values: torch.Tensor) -> torch.Tensor:
    """The values with the special ones of a draw among them."""
    return _with_specials(values, _SPECIALS[draw])


def _with_specials(values: torch.Tensor, specials: Sequence[float]) -> torch.Tensor:
    """Special values in half of the rows: of what is computed of a row that holds NaN, little is left.

    Some rows have all of them, others one kind: a kernel may ask for one of them alone.
    """
    share = _SPECIAL_SHARE // len(specials)
    if values.dim() < 2 or not values.numel():
        return holding(values, specials, share)
    rows = values.clone(memory_format=torch.contiguous_format).view(-1, values.shape[-1])
    chosen = torch.randperm(len(rows))[: -(-len(rows) // 2)].to(values.device)
    kinds = [specials, *([one] for one in specials if len(specials) > 1)]
    for number, kind in enumerate(kinds):
        at = chosen[number :: len(kinds)]
        if len(at):
            rows[at] = holding(rows[at], kind, share)
    return rows.view(values.shape)


def has_few_values(values: torch.Tensor) -> bool:
    """Whether the values come from a small set, as labels of -1 and 1 do, or masks of zeros and infinities."""
    if values.numel() <= _FEW_VALUES:
        return False
    sample = values.reshape(-1)[:_SAMPLED]
    return len(set(sample.tolist())) <= _FEW_VALUES and len(torch.unique(values)) <= _FEW_VALUES


def sums_to_one(values: torch.Tensor) -> bool:
    """Whether rows are probabilities."""
    if values.dim() == 0 or values.shape[-1] < 2 or bool((values < 0).any()):
        return False
    return bool(((values.sum(-1) - 1).abs() < _ONES_TOLERANCE).all())


def structure_of(declared: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """What gives values of a tensor's shape its symmetry and exact zeros (triangles, padding); None if it has none."""
    is_square = declared.dim() >= 2 and declared.shape[-1] == declared.shape[-2] > 1
    is_symmetric = is_square and torch.equal(declared, declared.mT) and bool((declared != declared[..., :1, :1]).any())
    zeros = declared == 0
    has_zeros = int(zeros.sum()) * 100 > declared.numel()
    if not is_symmetric and not has_zeros:
        return None
    declared_shape = declared.shape

    def keep(values: torch.Tensor) -> torch.Tensor:
        if values.shape != declared_shape:
            return values
        values = values.tril() + values.tril(-1).mT if is_symmetric else values
        return values.masked_fill(zeros, 0.0) if has_zeros else values

    return keep


def _keeping_structure(declared: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
    """The drawn values with the declared tensor's symmetry and exact zeros, and what is not finite of it."""
    keep = structure_of(declared)
    drawn = drawn if keep is None else keep(drawn)
    if math.isfinite(float(declared.sum())):  # so all of them are, for which no copy of a large tensor was made
        return drawn
    return torch.where(torch.isfinite(declared), drawn, declared)
