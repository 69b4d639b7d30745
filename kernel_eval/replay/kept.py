"""What earlier calls left in memory that the model keeps: a record's first steps make it anew (kind `remade`).

That holds for a table, which calls read. A workspace that a call changes is left by it as it then is, with whatever the
call's inputs were: a call has to be right with that, too, as one is that clears it first. Where the record was played
on other inputs before, it is what that play left. Pure.
"""

from __future__ import annotations

import torch

from weir.kernel_eval.ipc.trace import Trace

_ALIGNED = 16  # bytes, by which contents are moved

Contents = dict[int, torch.Tensor]  # by storage: its bytes


class Kept:
    """The kept storages of one run of a record."""

    def __init__(self, trace: Trace, dirty: Contents | None = None) -> None:
        """`dirty`: what they hold when the call's own steps begin, if it is not what the first steps made."""
        self._begins_at = trace.num_repeated
        self._positions = [at for at, storage in enumerate(trace.storages) if storage.kind == "remade"]
        self._dirty = dirty
        self._before: Contents = {}

    def begin_step(self, position: int, storages: list[torch.Tensor]) -> None:
        """Before each step of the record."""
        if position != self._begins_at:
            return
        if self._dirty is None:
            self._before = {at: storages[at].clone() for at in self._positions}
        for at, content in (self._dirty or {}).items():
            storages[at].copy_(content)

    def left(self, storages: list[torch.Tensor], earlier: Contents) -> Contents:
        """After the last step: what calls leave in the storages that it changed.

        `earlier`: what the last play left in them; takes what this one leaves. In the first play it is what this one
        leaves, each value at another place.
        """
        changed = [at for at, before in self._before.items() if not torch.equal(before, storages[at])]
        found = {at: earlier[at] if at in earlier else _moved(storages[at]) for at in changed}
        earlier.update((at, storages[at].clone()) for at in changed)
        return found


def _moved(content: torch.Tensor) -> torch.Tensor:
    """Bytes as a call with other inputs may leave them; a lone value stays."""
    return content.roll(len(content) // 3 // _ALIGNED * _ALIGNED + _ALIGNED * (len(content) > 2 * _ALIGNED))
