"""Whether the answers of a task depend on its inputs: a task whose answers never differ cannot tell a candidate apart.

The draws of one evaluation are independent. If the reference gives the same answer to all draws of a form, or one value
everywhere in all of them, then storing that answer would be right, and nothing was shown. Nor was it if rounding
decides most of the answer to every draw, as after a hundred steps of a chaotic map.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from weir.kernel_eval.tasks.errors import InvalidReference

MIN_DRAWS = 3
_PIECE = 1 << 20  # elements


class AnswerSpread:
    """The reference's answers of one evaluation, by form of inputs."""

    def __init__(self) -> None:
        self._first: dict[Any, list[bytes]] = {}
        self._num_draws = 0
        self._varies: set[int] = set()
        self._num_outputs = 0

    def note(self, form: Any, answer: list[torch.Tensor]) -> None:
        """Add the answer to one draw."""
        self._num_draws += 1
        self._num_outputs = max(self._num_outputs, len(answer))
        digests = [_digest(output) for output in answer]
        first = self._first.setdefault(form, digests)
        for number, (one, two) in enumerate(zip(first, digests, strict=False)):
            if one != two:
                self._varies.add(number)

    def constant_outputs(self) -> list[int]:
        """The outputs that were the same for all draws, by number; none if there were too few draws to tell."""
        if self._num_draws < MIN_DRAWS or len(self._first) == self._num_draws:
            return []
        return [number for number in range(self._num_outputs) if number not in self._varies]

    @property
    def num_outputs(self) -> int:
        """The most outputs that an answer had."""
        return self._num_outputs


def _digest(output: torch.Tensor) -> bytes:
    """A digest of the values: answers may fill most of the memory, and need not be kept to be told apart."""
    digest = hashlib.blake2b(str(tuple(output.shape)).encode(), digest_size=16)
    for piece in torch.split(output.reshape(-1), _PIECE):
        if piece.dtype is not torch.bool:
            piece = piece + 0  # a negative zero is a zero
        digest.update(piece.contiguous().view(torch.uint8).cpu().numpy().data if piece.numel() else b"")
    return digest.digest()


def check_told(told: set[int], num_outputs: int) -> None:
    """Raises `InvalidReference` if there is an output for which no draw told a right answer from zeros."""
    for number in range(num_outputs):
        if number not in told:
            raise InvalidReference(
                f"output {number} of the task amplifies rounding: in every draw, a rounding of the inputs changes it "
                "by about as much as its values are, so that zeros would pass"
            )
