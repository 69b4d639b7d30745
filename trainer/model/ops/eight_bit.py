"""Adam's moments as codes of one byte, with a scale for each block of a row.

Source: Dettmers and others, 2021 (arXiv 2110.02861, sections 2.1 and 2.2): a number is a code of 256 values that grow
by decades, times the largest magnitude of its block.

Invariant: blocks end where rows end, so that rows and their scales are sharded, saved and read alike. Parameters whose
rows are no whole blocks, such as norms, have float32 moments. A second moment above zero stays above zero, since a step
divides by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import torch

BLOCK = 64  # numbers with one scale; it divides the widths of models
SCALE = "_scale"  # appended to a moment's name
KINDS = ("exp_avg", "exp_avg_sq")


def has_blocks(parameter: torch.Tensor) -> bool:
    """Whether a parameter's moments are kept as codes."""
    return parameter.ndim > 1 and parameter.shape[-1] % BLOCK == 0


def moment_bytes(numbers: int, in_float: int) -> int:
    """Bytes of both moments of so many weights, of which `in_float` are in parameters without blocks."""
    coded = numbers - in_float
    return len(KINDS) * (coded + 4 * (coded // BLOCK) + 4 * in_float)


def quantised(moments: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Moments as codes with scales; such ones as they are."""
    found: dict[str, torch.Tensor] = {}
    for kind in KINDS:
        if kind + SCALE in moments:
            found |= {kind: moments[kind], kind + SCALE: moments[kind + SCALE]}
        else:
            found[kind], found[kind + SCALE] = _codes(moments[kind], signed=kind == KINDS[0])
    return found


def in_float(moments: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Moments as float32; such ones as they are."""
    return {
        kind: decoded(moments[kind], moments[kind + SCALE], kind) if kind + SCALE in moments else moments[kind]
        for kind in KINDS
    }


def decoded(codes: torch.Tensor, scales: torch.Tensor, kind: str) -> torch.Tensor:
    """The numbers (…, W) that codes (…, W) and scales (…, W / BLOCK) of a moment stand for."""
    values = _values(kind == KINDS[0], codes.device)
    return _blocks(values[codes.int()]).mul_(scales[..., None]).flatten(-2)


def _codes(numbers: torch.Tensor, *, signed: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The nearest codes, by shares rounded to 11 bits, and the scales of the blocks."""
    blocks = _blocks(numbers)
    scales = blocks.abs().amax(-1) if signed else blocks.amax(-1)
    shares = blocks / scales.clamp(min=torch.finfo(torch.float32).tiny)[..., None]
    halves = shares.half()  # its 16 bits name the code
    codes = _codes_of_halves(signed, numbers.device)[halves.view(torch.int16).int() & 0xFFFF]
    if not signed:  # values[0] is 0, which what is rounded to 0 is not
        codes.masked_fill_((codes == 0) & (shares > 0), 1)
    return codes.flatten(-2), scales


def _blocks(numbers: torch.Tensor) -> torch.Tensor:
    """A view (…, W / BLOCK, BLOCK) of numbers (…, W)."""
    return numbers.reshape(*numbers.shape[:-1], -1, BLOCK)


@cache
def _values(signed: bool, device: torch.device) -> torch.Tensor:
    """The 256 values of codes, ascending.

    A decade below 1 has half as many values as the one above it, in the middle of equal parts, down to 1e-7.
    """
    found = [0.0, 1.0]
    for decade in range(7):
        parts = 2 ** (decade if signed else decade + 1)
        steps = [10.0 ** (decade - 6) * (0.1 + 0.9 * (part + 0.5) / parts) for part in range(parts)]
        found += steps + ([-step for step in steps] if signed else [])
    return torch.tensor(sorted(found), dtype=torch.float32, device=device)


@cache
def _codes_of_halves(signed: bool, device: torch.device) -> torch.Tensor:
    """The code nearest to each float16, by its bits: a search among values takes ten times as long."""
    values = _values(signed, torch.device("cpu"))
    halves = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.float16).float()
    return torch.bucketize(halves.nan_to_num(), (values[1:] + values[:-1]) / 2).to(torch.uint8).to(device)
