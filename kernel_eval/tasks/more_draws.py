"""The draws of calls besides the planned ones, in which rows, all values, or masks are of one kind as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from weir.kernel_eval.tasks.changing import each_tensor, is_drawn, masks_among
from weir.kernel_eval.tasks.draws.constant_inputs import is_constant
from weir.kernel_eval.tasks.draws.integer_draws import Integers, left_out_labels
from weir.kernel_eval.tasks.draws.together import are_alike
from weir.kernel_eval.tasks.input_draws import has_few_values, sums_to_one
from weir.kernel_eval.tasks.input_variants import OF_MASKS, Draw
from weir.kernel_eval.tasks.rows import num_rows, row_size
from weir.kernel_eval.tasks.watches.pointwise import PointwiseWatch

_FEW_ROWS = 8
_MOST_RELATED = 1 << 18  # elements of all inputs; many steps are tried with them


def more_draws(watch: PointwiseWatch, inputs: list[Any], integers: Sequence[Integers]) -> list[Draw]:
    """The draws of a task: `watch` saw it, and `integers` are what it draws."""
    if watch.is_pointwise:
        return [Draw.FADED] if watch.is_quotient and are_alike(_drawn(inputs)) else []
    kinds = {Draw.SIGNED: num_rows(inputs) < _FEW_ROWS, Draw.VANISHING: watch.divides_by_one}
    joins_rows = watch.has_extreme_of_all or watch.num_joined > row_size(inputs)
    kinds |= dict.fromkeys((Draw.BELOW, Draw.ABOVE), joins_rows)
    # beside other inputs of hard values an extreme seldom counts, nor does a row in order beside larger ones
    kinds[Draw.PLACED] = watch.goes_by_steps
    kinds[Draw.PLACED] |= (watch.num_joined > 1 or watch.makes_places) and len(_drawn(inputs)) > 1
    kinds[Draw.CROWDED] = watch.takes_places and (watch.makes_places or any(map(_are_places, integers)))
    kinds[Draw.GROUPED] = watch.joins_groups and any(map(_are_places, integers))
    kinds[Draw.SURE] = any(value.is_floating_point() and sums_to_one(value) for value in each_tensor(inputs))
    kinds[Draw.MATCHED] = watch.matches_integers and not watch.stores and any(map(_are_places, integers))
    if sum(map(torch.Tensor.numel, each_tensor(inputs))) <= _MOST_RELATED:
        kinds[Draw.RELATED] = watch.turns and (watch.pairs_rows or _are_of_one_width(inputs))
    kinds |= dict.fromkeys(OF_MASKS, any(masks_among(inputs, integers)))
    kinds[Draw.HIDDEN] |= any(left_out_labels(seen, watch.asked) for seen in integers)
    kinds[Draw.STRUCTURED] = bool(integers) or any(map(_has_structure, each_tensor(inputs)))
    return [draw for draw, is_needed in kinds.items() if is_needed]


def _drawn(inputs: list[Any]) -> list[torch.Tensor]:
    return [tensor for tensor in each_tensor(inputs) if is_drawn(tensor)]


def _are_of_one_width(inputs: list[Any]) -> bool:
    """Whether several inputs of floats have rows, and rows of one width."""
    widths = [value.shape[-1] for value in _drawn(inputs) if value.dim() > 1]
    return len(widths) > len(set(widths))


def _are_places(seen: Integers) -> bool:
    """Whether integers may say where something lies: they have several values, and not the same in each draw."""
    return len(seen.values) > 2 and not bool(seen.fixed.all())


def _has_structure(value: torch.Tensor) -> bool:
    return is_constant(value) or (value.is_floating_point() and has_few_values(value))
