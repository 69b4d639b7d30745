"""What SGLang's checksums are with a version's tensors, where it serves them on a CPU, whole and as they are.

SGLang holds some projections joined (query, key, value; gate, up), and reports the first 64 bits of SHA-256 of each of
its tensors. On GPUs it reports a hash that only its own kernels compute, and ranks hold parts: none are compared there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping

import torch

from weir.trainer.publishing.members import Member

_JOINED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
_TYPES = ("bfloat16", "float16", "float32")


def has_checksums(member: Member) -> bool:
    """Whether an engine's checksums can be computed from a version's folder."""
    return not member.stages and member.device == "cpu" and member.num_ranks == 1


def differing(
    held: Mapping[str, str], names: Collection[str], tensor: Callable[[str], torch.Tensor], dtype: str
) -> list[str]:
    """The engine's tensors whose checksums `held` are not those of the version's; `tensor` reads one by its name.

    Where only the engine knows its type ("auto"), all are to be right in one.
    """
    parts = {own: part for own, part in _joined(names).items() if own in held}
    found = []
    for candidate in [dtype] if dtype in _TYPES else _TYPES:
        kind = getattr(torch, candidate)
        wrong = [own for own, part in parts.items() if _checksum([tensor(name).to(kind) for name in part]) != held[own]]
        if not wrong:
            return []
        found.append(wrong)
    return min(found, key=len)


def _joined(names: Collection[str]) -> dict[str, list[str]]:
    """SGLang's names of its tensors, and the names of those that each one holds, in their order."""
    joined: dict[str, list[str]] = {}
    for name in names:
        own = next((own for own, parts in _JOINED.items() if any(f".{part}." in name for part in parts)), None)
        if own is None:
            joined[name] = [name]
        elif f".{_JOINED[own][0]}." in name:
            first = f".{_JOINED[own][0]}."
            joined[name.replace(first, f".{own}.")] = [name.replace(first, f".{part}.") for part in _JOINED[own]]
    return joined


def _checksum(parts: list[torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
