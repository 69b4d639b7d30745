"""Norms of a model in one kernel on a GPU, where a family's own code takes six.

transformers writes RMSNorm (arXiv 1910.07467) as separate operations, each of which reads and writes the whole row. A
norm is replaced only where it computes what torch's `rms_norm` computes, which is tried for each class of norms with
random weights; others, such as Gemma's with weights from zero, stay as they are.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F

_EPSILONS = ("variance_epsilon", "eps")  # as families call it
TOLERANCE = 1e-5


def fuse_norms(network: torch.nn.Module) -> int:
    """Have the network's norms computed by `rms_norm` on GPUs; elsewhere they stay. Returns how many are replaced.

    The norm is computed in float32, and not rounded before it is multiplied by its weight; it is returned in the type
    of the family's own code. A replaced norm gets a class of its own, so that copies of it compute with their weights.
    """
    fused: dict[type, type] = {}
    count = 0
    for module in network.modules():
        own = type(module)
        if own not in fused and _looks_like_one(module) and _computes_it(module):
            fused[own] = type(f"Fused{own.__name__}", (own,), {"forward": _forward_of(own)})
        if own in fused:
            module.__class__ = fused[own]
            count += 1
    return count


def rms_norm(module: Any, states: torch.Tensor) -> torch.Tensor:
    """The norm of a module over the last dimension, in float32, returned in the type of states times weight."""
    weight = module.weight
    found = F.rms_norm(states.float(), weight.shape, weight.float(), _epsilon(module))
    return found.to(torch.promote_types(states.dtype, weight.dtype))


def _forward_of(own: Any) -> Any:
    def forward(self: Any, hidden_states: torch.Tensor) -> Any:
        return rms_norm(self, hidden_states) if _is_on_gpu(hidden_states) else own.forward(self, hidden_states)

    return forward


def _is_on_gpu(states: torch.Tensor) -> bool:
    return states.is_cuda


def _looks_like_one(module: torch.nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return (
        "RMSNorm" in type(module).__name__
        and isinstance(weight, torch.Tensor)
        and weight.dim() == 1
        and _epsilon(module) is not None
        and [name for name, _ in module.named_parameters(recurse=False)] == ["weight"]
    )


def _computes_it(module: torch.nn.Module) -> bool:
    """Whether a copy of the module, on the CPU with random weights, gives what `rms_norm` gives."""
    tried: Any = copy.deepcopy(module).to_empty(device="cpu").float()
    drawn = torch.Generator().manual_seed(0)
    size = len(tried.weight)
    with torch.no_grad():
        tried.weight.copy_(torch.rand(size, generator=drawn) + 0.5)
        states = torch.randn(4, size, generator=drawn)
        own = tried(states)
        expected = rms_norm(tried, states)
        return isinstance(own, torch.Tensor) and torch.allclose(own, expected, atol=TOLERANCE, rtol=TOLERANCE)


def _epsilon(module: torch.nn.Module) -> float | None:
    found = next((getattr(module, name) for name in _EPSILONS if hasattr(module, name)), None)
    return found if isinstance(found, float) else None
