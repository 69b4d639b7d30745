"""Text that someone forged ends in an error of ours or in a result, never in another exception."""

from __future__ import annotations

import random

import pytest
import support_ir_kernels
import torch
from support_ttir import launch_text, signature_of, ttir_of

from weir.kernel_eval.ir.errors import IrError, KernelFault, LimitExceeded
from weir.kernel_eval.ir.limits import RunLimits

NAMES = ["sums", "branches", "descriptors", "dots", "integers_int32"]
LIMITS = RunLimits(max_iterations=1000, max_steps=20_000, cpu_s=5.0, memory_bytes=1 << 26)
PIECES = [
    "0",
    "9",
    "-",
    "1048576",
    "9223372036854775807",
    "i64",
    "i1",
    "f32",
    "x",
    "<",
    ">",
    "%",
    "{",
    "}",
    "tt.load",
    "\n",
]


def mutated(text: str, draw: random.Random) -> str:
    """One to three places of a text changed: removed, doubled, replaced, or numbers exchanged."""
    for _ in range(draw.randint(1, 3)):
        start = draw.randrange(len(text))
        end = min(len(text), start + draw.randint(1, 12))
        piece = draw.choice(["", text[start:end] * 2, draw.choice(PIECES), text[: draw.randrange(20)]])
        text = text[:start] + piece + text[end:]
    return text


def changed_numbers(text: str, draw: random.Random) -> str:
    """One number or type of a body replaced by another, so that most texts are still read."""
    words = text.split(" ")
    places = [at for at, word in enumerate(words) if word.strip("%,:").isdecimal() or word in ("i32", "slt", "x")]
    words[draw.choice(places)] = draw.choice(["0", "1", "2", "-1", "2147483647", "i64", "sge", "y"])
    return " ".join(words)


@pytest.mark.parametrize("name", NAMES)
def test_changed_text_gives_an_error_of_ours_or_a_result(name: str) -> None:
    kernel, grid, arguments, constants = support_ir_kernels.cases()[name]
    text = ttir_of(kernel, signature_of(kernel, arguments, constants), constants)
    text = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    draw = random.Random(7)
    ran = refused = 0
    for number in range(24):
        forged = (changed_numbers if number % 2 else mutated)(text, draw)
        given = [one.clone() if isinstance(one, torch.Tensor) else one for one in arguments]
        try:
            launch_text(forged, grid, given, LIMITS)
            ran += 1
        except IrError:
            refused += 1
    assert ran + refused == 24
    assert refused > 5


ENDLESS = """module {
  tt.func public @f(%n: i32) {
    %c1 = arith.constant 1 : i32
    %true = arith.constant true
    %r = scf.while (%a = %n) : (i32) -> i32 {
      scf.condition(%true) %a : i32
    } do {
    ^bb0(%b: i32):
      %d = arith.addi %b, %c1 : i32
      scf.yield %d : i32
    }
    tt.return
  }
}
"""


def test_a_loop_without_end_is_stopped_by_a_limit() -> None:
    for limits in (RunLimits(max_iterations=500), RunLimits(max_steps=500), RunLimits(cpu_s=0.2)):
        with pytest.raises(LimitExceeded):
            launch_text(ENDLESS, (3,), [1], limits)


FORGED = """module {
  tt.func public @f(%x: !tt.ptr<f32>, %n: i64) {
    %i = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
    %p = tt.addptr %x, %n : !tt.ptr<f32>, i64
    %q = tt.splat %p : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
    %a = tt.addptr %q, %i : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
    %v = tt.load %a : tensor<8x!tt.ptr<f32>>
    tt.store %a, %v : tensor<8x!tt.ptr<f32>>
    tt.return
  }
}
"""


@pytest.mark.parametrize(
    "offset", [57, -1, 1 << 38, (1 << 38) - 3, -(1 << 38), 1 << 60, (1 << 63) - 1, 999 - (1 << 63)]
)
def test_no_offset_leaves_the_tensors_of_the_launch(offset: int) -> None:
    with pytest.raises(KernelFault) as raised:
        launch_text(FORGED, (1,), [torch.zeros(64), offset])
    assert raised.value.kind == "out_of_bounds"
