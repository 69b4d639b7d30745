"""The experts that a mixture's tokens went to, joined from the pieces of a call.

An engine that is asked gives them with a piece's last chunk: int32 in base64, for each token from a wanted position to
the last but one, each layer and each chosen expert. A piece that ended without them (its engine died) lacks nothing:
the next one is asked from the same position on. Invariant: rows follow each other without gap. Pure: no I/O, no clock.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Choices = npt.NDArray[np.int32]


@dataclass(slots=True)
class RoutedExperts:
    """Rows of all tokens from `start` on, as far as they came; `why` says what was wrong with the last that did."""

    start: int
    num_sent: int  # tokens before the output
    rows: Choices | None = None  # (tokens, layers × chosen)
    why: str | None = None

    def anew(self) -> RoutedExperts:
        """The same, before anything came."""
        return RoutedExperts(self.start, self.num_sent)

    @property
    def end(self) -> int:
        """The first position without a row: what the next piece is asked from."""
        return self.start + (0 if self.rows is None else len(self.rows))

    def of(self, num_output: int) -> Choices | None:
        """The rows of all tokens but the last, with an output of so many tokens; None where some did not come."""
        return self.rows if self.end == self.num_sent + num_output - 1 else None

    def add(self, encoded: str | None, num_output: int) -> None:
        """Take what the last chunk of a piece brought, after which the output has so many tokens."""
        missing = self.num_sent + num_output - 1 - self.end
        self.why = None
        if missing <= 0:
            return
        try:
            found = np.frombuffer(b64decode(encoded or "", validate=True), "<i4")
        except (binascii.Error, ValueError) as error:
            self.why = f"routed_experts is not int32 in base64 ({error})"
            return
        if not len(found):
            self.why = "it brought none"
        elif len(found) % missing or (self.rows is not None and len(found) != missing * self.rows.shape[1]):
            self.why = f"{len(found)} choices came for {missing} tokens"
        elif found.min() < 0 or found.max() >= 2**16:
            self.why = f"experts {found.min()} to {found.max()} came"
        else:
            rows = found.reshape(missing, -1)
            self.rows = rows if self.rows is None else np.concatenate([self.rows, rows])
