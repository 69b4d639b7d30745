"""Kernels for the generated family, assembled from slots with one correct and several faulty variants each.

A slot is a place of typical errors: offset, mask, operation, scale, store. The faults are common ones: an operation
that `tl` lacks, the wrong axis, a missing mask, a mask that is one element too long, a wrong neutral element.
Invariants: the first variant of a slot is the correct one, and the weights of a slot sum to 1. In some slots a faulty
variant is the likeliest, so that learning shows in greedy answers too. A variant's fault is the expected one; the
kernel-evaluation server decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from weir.agents.family import SCALES, Kind, Member
from weir.kernel_eval.client import Fault


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to fill a slot, its probability, and the expected fault; None for the correct variant."""

    text: str
    weight: float
    fault: Fault | None = None


Slots = dict[str, tuple[Variant, ...]]

RIGHT_UNARY = {
    "relu": "tl.maximum({v}, 0.0)",
    "sigmoid": "tl.sigmoid({v})",
    "exp": "tl.exp({v})",
    "abs": "tl.abs({v})",
    "square": "{v} * {v}",
    "silu": "{v} * tl.sigmoid({v})",
    "neg": "-{v}",
    "sqrt_abs": "tl.sqrt(tl.abs({v}))",
}
RAISING_UNARY = {
    "relu": "tl.relu({v})",
    "sigmoid": "sigmoid({v})",
    "exp": "exp({v})",
    "abs": "abs_({v})",
    "square": "tl.square({v})",
    "silu": "tl.silu({v})",
    "neg": "tl.neg({v})",
    "sqrt_abs": "tl.sqrt_abs({v})",
}
MISMATCHED_UNARY = {
    "relu": "tl.minimum({v}, 0.0)",
    "sigmoid": "1.0 / (1.0 + tl.exp({v}))",
    "exp": "tl.exp2({v})",
    "abs": "tl.maximum({v}, 0.0)",
    "square": "{v} + {v}",
    "silu": "tl.sigmoid({v})",
    "neg": "1.0 - {v}",
    "sqrt_abs": "tl.sqrt({v})",
}
RIGHT_BINARY = {"add": "x + y", "sub": "x - y", "mul": "x * y", "max": "tl.maximum(x, y)", "min": "tl.minimum(x, y)"}
WRONG_BINARY = {"add": "x - y", "sub": "y - x", "mul": "x + y", "max": "tl.fmax(x, y)", "min": "tl.fmin(x, y)"}
RIGHT_ROW = {
    "sum": "tl.sum(x, axis=0)",
    "max": "tl.max(x, axis=0)",
    "min": "tl.min(x, axis=0)",
    "mean": "tl.sum(x, axis=0) / n",
    "sumsq": "tl.sum(x * x, axis=0)",
}
WRONG_ROW = {
    "sum": "tl.sum(x, axis=1)",
    "max": "tl.amax(x, axis=0)",
    "min": "tl.amin(x, axis=0)",
    "mean": "tl.mean(x, axis=0)",
    "sumsq": "tl.sqrt(tl.sum(x, axis=0))",
}
NEUTRAL = {"max": '-float("inf")', "min": 'float("inf")'}

# Probabilities of faulty variants. Above one half, a greedy model writes the faulty one.
WRONG_OFFSET = 0.10
WRONG_MASK = 0.10
WRONG_LOAD = 0.10
WRONG_ROW_START = 0.15
WRONG_NEUTRAL = 0.40
WRONG_SCALE = 0.10
WRONG_STORE = 0.15
WRONG_OP = 0.20
WRONG_OP_OFTEN = 0.65
OFTEN_WRONG_UNARY = {"relu", "silu", "square", "sqrt_abs"}
OFTEN_WRONG_BINARY = {"max"}
OFTEN_WRONG_ROW = {"mean", "sum"}


def slots_of(member: Member) -> Slots:
    """The slots of one member's kernel, by name."""
    return _row_slots(member) if member.kind is Kind.ROW else _elementwise_slots(member)


def assemble(member: Member, texts: dict[str, str]) -> str:
    """The kernel whose slots hold `texts`; no newline at its end."""
    return "\n".join(_row_lines(texts) if member.kind is Kind.ROW else _elementwise_lines(member, texts))


def _elementwise_slots(member: Member) -> Slots:
    slots = {
        "offset": _two("pid * BLOCK", "pid", WRONG_OFFSET, Fault.NON_FINITE),
        "compare": _two("<", "<=", WRONG_MASK, Fault.ILLEGAL_ACCESS),
        "store": _two(", mask=mask)", ")", WRONG_STORE, Fault.ILLEGAL_ACCESS),
    }
    if member.kind is not Kind.UNARY:
        inner = member.inner or member.op
        wrong = WRONG_OP_OFTEN if inner in OFTEN_WRONG_BINARY else WRONG_OP
        fault = Fault.TRITON_COMPILE_ERROR if inner in ("max", "min") else Fault.OUTPUT_MISMATCH
        slots["second"] = _two("y_ptr", "x_ptr", WRONG_LOAD)
        slots["binary"] = _two(RIGHT_BINARY[inner], WRONG_BINARY[inner], wrong, fault)
    if member.kind is not Kind.BINARY:
        slots["unary"] = _unary_variants(member.op, "x" if member.kind is Kind.UNARY else "v")
    if member.kind is not Kind.FUSED:
        slots["scale"] = _scale_variants(member.scale)
    return slots


def _row_slots(member: Member) -> Slots:
    op = member.op
    neutral = _two(NEUTRAL[op], "0.0", WRONG_NEUTRAL) if op in NEUTRAL else _two("0.0", "1.0", WRONG_LOAD)
    fault = Fault.OUTPUT_MISMATCH if op == "sumsq" else Fault.TRITON_COMPILE_ERROR
    return {
        "compare": _two("<", "<=", WRONG_MASK),
        "row_start": _two("row * n", "row", WRONG_ROW_START),
        "neutral": neutral,
        "reduce": _two(RIGHT_ROW[op], WRONG_ROW[op], WRONG_OP_OFTEN if op in OFTEN_WRONG_ROW else WRONG_OP, fault),
        "scale": _scale_variants(member.scale),
        "target": _two("out_ptr + row", "out_ptr", WRONG_STORE, Fault.NON_FINITE),
    }


def _two(right: str, wrong: str, share: float, fault: Fault = Fault.OUTPUT_MISMATCH) -> tuple[Variant, ...]:
    return Variant(right, 1.0 - share), Variant(wrong, share, fault)


def _unary_variants(op: str, v: str) -> tuple[Variant, ...]:
    """The variants of a unary operation; where faulty ones are likelier, a single one of them is the likeliest."""
    often = op in OFTEN_WRONG_UNARY
    wrong = WRONG_OP_OFTEN if often else WRONG_OP
    raising = wrong * (0.85 if often else 0.5)
    return (
        Variant(RIGHT_UNARY[op].format(v=v), 1.0 - wrong),
        Variant(RAISING_UNARY[op].format(v=v), raising, Fault.TRITON_COMPILE_ERROR),
        Variant(MISMATCHED_UNARY[op].format(v=v), wrong - raising, Fault.OUTPUT_MISMATCH),
    )


def _scale_variants(scale: int) -> tuple[Variant, ...]:
    others = [other for other in SCALES if other != scale]
    wrong = tuple(Variant(str(other), WRONG_SCALE / len(others), Fault.OUTPUT_MISMATCH) for other in others)
    return Variant(str(scale), 1.0 - WRONG_SCALE), *wrong


def _elementwise_lines(member: Member, texts: dict[str, str]) -> list[str]:
    unary = member.kind is Kind.UNARY
    inner = [] if unary else [f"    y = tl.load({texts['second']} + offs, mask=mask)"]
    if member.kind is Kind.FUSED:
        scale, inner, result = [], [*inner, f"    v = {texts['binary']}"], texts["unary"]
    else:
        scale, result = [_scale_line(texts)], f"({texts['unary' if unary else 'binary']}) * scale"
    return [
        "@triton.jit",
        f"def kernel(x_ptr, {'' if unary else 'y_ptr, '}out_ptr, n, BLOCK: tl.constexpr):",
        *scale,
        "    pid = tl.program_id(0)",
        f"    offs = {texts['offset']} + tl.arange(0, BLOCK)",
        f"    mask = offs {texts['compare']} n",
        "    x = tl.load(x_ptr + offs, mask=mask)",
        *inner,
        f"    out = {result}",
        f"    tl.store(out_ptr + offs, out{texts['store']}",
    ]


def _row_lines(texts: dict[str, str]) -> list[str]:
    return [
        "@triton.jit",
        "def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):",
        _scale_line(texts),
        "    row = tl.program_id(0)",
        "    offs = tl.arange(0, BLOCK)",
        f"    mask = offs {texts['compare']} n",
        f"    x = tl.load(x_ptr + {texts['row_start']} + offs, mask=mask, other={texts['neutral']})",
        f"    out = ({texts['reduce']}) * scale",
        f"    tl.store({texts['target']}, out)",
    ]


def _scale_line(texts: dict[str, str]) -> str:
    """The first line, at a fixed distance from the scale in the prompt, where small models learn to copy it soonest."""
    return f"    scale = {texts['scale']}.0"
