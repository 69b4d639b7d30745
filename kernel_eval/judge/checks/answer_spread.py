"""Whether the answers of a task depend on its inputs: a task whose answers never differ cannot tell a candidate apart.

The draws of one evaluation are independent. If the reference gives the same answer to all draws of a form, or one value
everywhere in all of them, then storing that answer would be right, and nothing was shown.
"""

from __future__ import annotations

from typing import Any

import torch

MIN_DRAWS = 3


class AnswerSpread:
    """The reference's answers of one evaluation, by form of inputs."""

    def __init__(self) -> None:
        self._first: dict[Any, list[torch.Tensor]] = {}
        self._num_draws = 0
        self._varies: set[int] = set()
        self._num_outputs = 0

    def note(self, form: Any, answer: list[torch.Tensor]) -> None:
        """Add the answer to one draw."""
        self._num_draws += 1
        self._num_outputs = max(self._num_outputs, len(answer))
        first = self._first.setdefault(form, answer)
        for number, (one, two) in enumerate(zip(first, answer, strict=False)):
            if one is not two and not torch.equal(one, two):
                self._varies.add(number)

    def constant_outputs(self) -> list[int]:
        """The outputs that were the same for all draws, by number; none if there were too few draws to tell."""
        if self._num_draws < MIN_DRAWS or len(self._first) == self._num_draws:
            return []
        return [number for number in range(self._num_outputs) if number not in self._varies]
