"""Layers whose operations torch.compile fuses; attention stays as it is, so that a layer is compiled in two parts.

Layers of one form share what is compiled, and it serves any number of tokens. Where activations are recomputed, what is
recomputed is compiled: from outside, torch.compile leaves a checkpoint that it cannot compile whole as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

MOST_COMPILED = 32  # forms of a layer, times passes with and without gradient; torch's own limit of 8 is soon met


def compile_layers(layers: Sequence[torch.nn.Module], backend: str = "inductor") -> None:
    """Have the layers of a transformers model compiled, each form at its first call."""
    torch._dynamo.config.recompile_limit = max(MOST_COMPILED, torch._dynamo.config.recompile_limit)
    compiled = partial(torch.compile, backend=backend, dynamic=True)
    for layer in layers:
        part: Any = layer
        if getattr(layer, "gradient_checkpointing", False):
            part._gradient_checkpointing_func = _Recomputed(part._gradient_checkpointing_func, compiled)
        else:
            part.compile(backend=backend, dynamic=True)


class _Recomputed:
    """A layer's checkpoint over the compiled layer. It is called with the layer's `forward`, as a partial function."""

    def __init__(self, checkpoint: Callable[..., Any], compiled: Callable[[Any], Callable[..., Any]]) -> None:
        self.checkpoint, self.compiled = checkpoint, compiled
        self._known: dict[Callable[..., Any], Callable[..., Any]] = {}

    def __call__(self, forward: partial[Any], *args: Any) -> Any:
        if forward.func not in self._known:
            self._known[forward.func] = self.compiled(forward.func)
        fused = self._known[forward.func]
        return self.checkpoint(partial(fused, *forward.args, **forward.keywords), *args)
