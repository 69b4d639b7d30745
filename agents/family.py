"""The generated family of tasks: small kernels of four kinds that differ in operation and scale.

    unary    out[i] = relu(x[i]) * 3.0                  fused   out[i] = relu(add(x[i], y[i]))
    binary   out[i] = add(x[i], y[i]) * 3.0             row     out[r] = row_sum(x[r, :]) * 3.0

A member's task has a reference in KernelBench's form and a template, which launches the function `kernel` that the
model writes. Sizes are small for Triton's interpreter, and no multiple of BLOCK, so that a kernel without a mask is
wrong. Invariants: members and their order are fixed; a member's split depends on its name alone, so that new members do
not move others between the splits.
"""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from weir.agents.tasks import write_tasks
from weir.kernel_eval.client import KernelTask

FAMILY_FILE = "family.jsonl"
SCALES = range(1, 10)
HELDOUT_ONE_IN = 6
NUM_ELEMENTS = 100  # two programs of BLOCK_ELEMENTS, the second one partly masked
BLOCK_ELEMENTS = 64
NUM_ROWS, NUM_COLUMNS = 3, 20
BLOCK_COLUMNS = 32

# The references' expressions; `v` has shape (NUM_ELEMENTS,), `x` in ROW (NUM_ROWS, NUM_COLUMNS).
UNARY = {
    "relu": "torch.relu({v})",
    "sigmoid": "torch.sigmoid({v})",
    "exp": "torch.exp({v})",
    "abs": "torch.abs({v})",
    "square": "{v} * {v}",
    "silu": "torch.nn.functional.silu({v})",
    "neg": "-({v})",
    "sqrt_abs": "torch.sqrt(torch.abs({v}))",
}
BINARY = {
    "add": "x + y",
    "sub": "x - y",
    "mul": "x * y",
    "max": "torch.maximum(x, y)",
    "min": "torch.minimum(x, y)",
}
ROW = {
    "sum": "x.sum(dim=1)",
    "max": "x.amax(dim=1)",
    "min": "x.amin(dim=1)",
    "mean": "x.mean(dim=1)",
    "sumsq": "(x * x).sum(dim=1)",
}


class Kind(enum.StrEnum):
    """The four forms of a member."""

    UNARY = "unary"
    BINARY = "binary"
    FUSED = "fused"
    ROW = "row"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One task of the family. `inner` is the binary operation below `op`, for fused members only."""

    kind: Kind
    op: str
    inner: str | None = None
    scale: int = 1

    @property
    def task_id(self) -> str:
        if self.kind is Kind.FUSED:
            return f"fused_{self.op}_of_{self.inner}"
        return f"{self.kind}_{self.op}_x{self.scale}"

    @property
    def split(self) -> Literal["train", "heldout"]:
        digest = hashlib.sha256(f"held out:{self.task_id}".encode()).digest()
        return "heldout" if int.from_bytes(digest[:4], "big") % HELDOUT_ONE_IN == 0 else "train"

    @property
    def prompt(self) -> str:
        match self.kind:
            case Kind.UNARY:
                return f"# out[i] = {self.op}(x[i]) * {self.scale}.0"
            case Kind.BINARY:
                return f"# out[i] = {self.op}(x[i], y[i]) * {self.scale}.0"
            case Kind.FUSED:
                return f"# out[i] = {self.op}({self.inner}(x[i], y[i]))"
            case Kind.ROW:
                return f"# out[r] = row_{self.op}(x[r, :]) * {self.scale}.0"


def members() -> list[Member]:
    """All members, in a fixed order."""
    unary = [Member(kind=Kind.UNARY, op=op, scale=scale) for op in UNARY for scale in SCALES]
    binary = [Member(kind=Kind.BINARY, op=op, scale=scale) for op in BINARY for scale in SCALES]
    fused = [Member(kind=Kind.FUSED, op=op, inner=inner) for op in UNARY for inner in BINARY]
    row = [Member(kind=Kind.ROW, op=op, scale=scale) for op in ROW for scale in SCALES]
    return unary + binary + fused + row


def member_task(member: Member) -> KernelTask:
    """The task of one member, ready to be registered with a session and judged."""
    return KernelTask(
        task_id=member.task_id,
        prompt=member.prompt,
        reference_src=_reference(member),
        candidate_template=_template(member),
        backend="triton",
        split=member.split,
        family=str(member.kind),
    )


def family_tasks(split: str | None = None) -> list[KernelTask]:
    """The whole family, or one split of it ("train" or "heldout")."""
    return [member_task(member) for member in members() if split in (None, member.split)]


def write_family(folder: Path) -> Path:
    """Write the whole family as one JSON Lines file into `folder`, which then is a task folder; returns the file."""
    file = folder / FAMILY_FILE
    write_tasks(file, family_tasks())
    return file


_REFERENCE = '''"""{prompt}"""

import torch


class Model(torch.nn.Module):
    def forward(self, {parameters}: torch.Tensor) -> torch.Tensor:
        return {expression}


def get_inputs() -> list[torch.Tensor]:
    return [{inputs}]


def get_init_inputs() -> list[object]:
    return []
'''


def _reference(member: Member) -> str:
    return _REFERENCE.format(
        prompt=member.prompt,
        parameters="x" if member.kind in (Kind.UNARY, Kind.ROW) else "x: torch.Tensor, y",
        expression=_expression(member),
        inputs=_inputs(member),
    )


def _expression(member: Member) -> str:
    match member.kind:
        case Kind.UNARY:
            return f"({UNARY[member.op].format(v='x')}) * {member.scale}.0"
        case Kind.BINARY:
            return f"({BINARY[member.op]}) * {member.scale}.0"
        case Kind.FUSED:
            return UNARY[member.op].format(v=f"({BINARY[member.inner or '']})")
        case Kind.ROW:
            return f"({ROW[member.op]}) * {member.scale}.0"


def _inputs(member: Member) -> str:
    """The inputs; rows are shifted away from zero, so that a masked-out zero changes a maximum or minimum."""
    if member.kind is Kind.ROW:
        shift = "- 3.0" if member.op == "max" else "+ 3.0"
        return f"torch.randn({NUM_ROWS}, {NUM_COLUMNS}) {shift}"
    one = f"torch.randn({NUM_ELEMENTS})"
    return one if member.kind is Kind.UNARY else f"{one}, {one}"


_ELEMENTWISE_TEMPLATE = """import torch
import triton
import triton.language as tl


{{kernel}}


class ModelNew(torch.nn.Module):
    def forward(self, {parameters}: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        n = x.numel()
        kernel[(triton.cdiv(n, {block}),)]({arguments}, out, n, BLOCK={block})
        return out
"""

_ROW_TEMPLATE = """import torch
import triton
import triton.language as tl


{{kernel}}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, n = x.shape
        out = torch.empty(rows, dtype=x.dtype, device=x.device)
        kernel[(rows,)](x, out, n, BLOCK={block})
        return out
"""


def _template(member: Member) -> str:
    match member.kind:
        case Kind.ROW:
            return _ROW_TEMPLATE.format(block=BLOCK_COLUMNS)
        case Kind.UNARY:
            return _ELEMENTWISE_TEMPLATE.format(parameters="x", arguments="x", block=BLOCK_ELEMENTS)
        case Kind.BINARY | Kind.FUSED:
            return _ELEMENTWISE_TEMPLATE.format(parameters="x: torch.Tensor, y", arguments="x, y", block=BLOCK_ELEMENTS)
