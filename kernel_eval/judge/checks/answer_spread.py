"""Whether the answers of a task depend on its inputs: a task whose answers never differ cannot tell a candidate apart.

The draws of one evaluation are independent. If one answer would pass for those of the reference to all draws of a
form (the sum of a softmax is one, but for roundings), then storing it would be right, and nothing was shown. Nor was it
if rounding decides most of the answer to every draw, as after a hundred steps of a chaotic map.
"""

from __future__ import annotations

from typing import Any

import torch

from weir.kernel_eval.judge.checks.tolerance import compare
from weir.kernel_eval.tasks.errors import InvalidReference
from weir.kernel_eval.tasks.rows import thinned

MIN_DRAWS = 3


class AnswerSpread:
    """The reference's answers of one evaluation, by form of inputs."""

    def __init__(self) -> None:
        self._first: dict[Any, list[torch.Tensor]] = {}
        self._num_draws = 0
        self._varies: set[int] = set()
        self._num_outputs = 0

    def note(self, form: Any, answer: list[torch.Tensor]) -> None:
        """Add the answer to one draw. Of large ones some rows are kept."""
        self._num_draws += 1
        self._num_outputs = max(self._num_outputs, len(answer))
        if form not in self._first:
            self._first[form] = [thinned(output).clone() for output in answer]
            return
        for number, (one, two) in enumerate(zip(self._first[form], answer, strict=False)):
            if number not in self._varies and is_another(thinned(two), one):
                self._varies.add(number)

    def constant_outputs(self) -> list[int]:
        """The outputs for which one answer passes in all draws, by number; none if there were too few draws to tell."""
        if self._num_draws < MIN_DRAWS or len(self._first) == self._num_draws:
            return []
        return [number for number in range(self._num_outputs) if number not in self._varies]

    @property
    def num_outputs(self) -> int:
        """The most outputs that an answer had."""
        return self._num_outputs


def is_another(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether an answer is wrong where another one is expected; a negative zero is a zero."""
    return one.shape != two.shape or one.dtype != two.dtype or compare(two, one) is not None


def check_told(told: set[int], num_outputs: int) -> None:
    """Raises `InvalidReference` if there is an output for which no draw told a right answer from zeros."""
    for number in range(num_outputs):
        if number not in told:
            raise InvalidReference(
                f"output {number} of the task amplifies rounding: in every draw, a rounding of the inputs changes it "
                "by about as much as its values are, so that zeros would pass"
            )
