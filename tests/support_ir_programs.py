"""Kernels that are drawn from a grammar, and a process in which Triton's interpreter runs them.

All values of a program are integers that its types hold exactly, also the floats: results are clamped after each
operation, so that neither the order of a sum nor the precision of a product is seen, and answers are compared bit by
bit. Undefined cases, such as a shift by more than the width, are not drawn.

As a program with TRITON_INTERPRET=1, it answers what `InterpreterProcess` sends.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from hypothesis import strategies as st

BOUNDS = {"float32": 1000, "float64": 1000, "float16": 40, "bfloat16": 15}  # their products and sums of 16 are exact
INTEGERS = ("int32", "int64")
_HEAD = """import triton
import triton.language as tl


@triton.jit
def helper(a, b, FLIP: tl.constexpr):
    if FLIP:
        return b - a
    return a - b


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def kernel(x, y, floats, integers, counts, n, R: tl.constexpr, C: tl.constexpr):
    pid = tl.program_id(0)
    place = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    inside = place < R * C - n
"""
_SLOTS = 24


@dataclass(frozen=True)
class Program:
    """Source of a kernel, the shape of its tensors, and how many programs run it."""

    source: str
    rows: int
    columns: int
    programs: int

    def arguments(self) -> list[Any]:
        """Inputs, zeros for answers, and a number that steers loops."""
        draw = torch.Generator().manual_seed(self.rows * 100 + self.columns)
        size = self.rows * self.columns
        x = torch.randint(-15, 16, (self.programs, size), generator=draw).float()
        y = torch.randint(-(1 << 31), (1 << 31) - 1, (self.programs, size), generator=draw).int()
        slots = self.programs * _SLOTS * size
        answers = [torch.zeros(slots), torch.zeros(slots, dtype=torch.int64), torch.zeros(size, dtype=torch.int64)]
        return [x, y, *answers, 5]

    @property
    def constants(self) -> dict[str, int]:
        """The kernel's constants."""
        return {"R": self.rows, "C": self.columns}


class _Writer:
    """Draws statements; knows the type of each value, all of which have the shape (R, C)."""

    def __init__(self, draw: Any, rows: int, columns: int, floats: Sequence[str]) -> None:
        self._draw, self._rows, self._columns, self._floats = draw, rows, columns, floats
        self.lines = [
            "    v0 = tl.load(x + pid * R * C + place)",
            "    v1 = tl.load(y + pid * R * C + place, mask=inside, other=7)",
        ]
        self._types = ["float32", "int32"]

    def statement(self) -> None:
        """Add one statement, and one value."""
        makers = [self._binary, self._where, self._cast, self._reduce, self._scan, self._movement, self._loop]
        makers += [self._branch, self._gather, self._while, self._call, self._dot, self._atomic, self._bits]
        expression, kind = self._draw(st.sampled_from(makers))()
        name = f"v{len(self._types)}"
        if kind in BOUNDS:
            expression = f"tl.minimum(tl.maximum({expression}, -{BOUNDS[kind]}), {BOUNDS[kind]})"
        self.lines.append(f"    {name} = ({expression}).to(tl.{kind})")
        self._types.append(kind)

    def stores(self) -> list[str]:
        """Every value into its slot."""
        found = []
        for number, kind in enumerate(self._types):
            pointer, wide = ("floats", "float32") if kind in BOUNDS else ("integers", "int64")
            found.append(
                f"    tl.store({pointer} + (pid * {_SLOTS} + {number}) * R * C + place, v{number}.to(tl.{wide}))"
            )
        return found

    def _any(self, kinds: Sequence[str] | None = None) -> tuple[str, str]:
        numbers = [i for i, kind in enumerate(self._types) if kinds is None or kind in kinds]
        number = self._draw(st.sampled_from(numbers))
        return f"v{number}", self._types[number]

    def _number(self, low: int, high: int) -> int:
        return int(self._draw(st.integers(low, high)))

    def _binary(self) -> tuple[str, str]:
        a, kind = self._any()
        b, _ = self._any([kind])
        if self._draw(st.booleans()):
            return f"{self._draw(st.sampled_from(['tl.minimum', 'tl.maximum']))}({a}, {b})", kind
        return f"{a} {self._draw(st.sampled_from('+-*'))} {b}", kind

    def _bits(self) -> tuple[str, str]:
        a, kind = self._any(INTEGERS)
        b, _ = self._any([kind])
        shift, divisor = self._number(0, 20), self._draw(st.sampled_from([-7, 2, 3, 8, 1000]))
        forms = [f"{a} & {b}", f"{a} | {b}", f"{a} ^ {b}", f"~{a}", f"-{a}", f"tl.abs({a} // 2)"]
        forms += [f"{a} << {shift}", f"{a} >> {shift}", f"{a} // {divisor}", f"{a} % {divisor}"]
        return self._draw(st.sampled_from(forms)), kind

    def _condition(self) -> str:
        a, kind = self._any()
        b, _ = self._any([kind])
        condition = f"({a} {self._draw(st.sampled_from(['<', '<=', '>', '>=', '==', '!=']))} {b})"
        c, _ = self._any()
        other = self._draw(
            st.sampled_from(["", f" & ({c} > {self._number(-9, 9)})", " | inside", " & (place % 3 == 1)"])
        )
        return f"({condition}{other})"

    def _where(self) -> tuple[str, str]:
        a, kind = self._any()
        b, _ = self._any([kind])
        return f"tl.where({self._condition()}, {a}, {b})", kind

    def _cast(self) -> tuple[str, str]:
        a, kind = self._any()
        to = self._draw(st.sampled_from([*self._floats, *INTEGERS, "int8", "int16"]))
        final = "int32" if to in ("int8", "int16") else to
        if kind in INTEGERS and to in BOUNDS:  # bounded first: a large integer is rounded on its way to a float
            a = f"tl.minimum(tl.maximum({a}, -{BOUNDS[to]}), {BOUNDS[to]})"
        if kind in BOUNDS and to == "int8":
            a = f"tl.minimum(tl.maximum({a}, -100), 100)"
        return f"{a}.to(tl.{to})", final

    def _reduce(self) -> tuple[str, str]:
        a, kind = self._any()
        axis = self._number(0, 1)
        form = self._draw(st.sampled_from(["sum", "max", "min", "argmax", "reduce", "xor_sum"]))
        if form == "xor_sum" and kind in BOUNDS:
            form = "sum"
        reduced = f"tl.reduce({a}, {axis}, larger)" if form == "reduce" else f"tl.{form}({a}, axis={axis})"
        kind = "int32" if form == "argmax" else kind
        return f"tl.broadcast_to(tl.expand_dims({reduced}, {axis}), (R, C))", kind

    def _scan(self) -> tuple[str, str]:
        a, kind = self._any()
        axis, reverse = self._number(0, 1), self._draw(st.booleans())
        if self._draw(st.booleans()):
            return f"tl.cumsum({a}, axis={axis}, reverse={reverse})", kind
        return f"tl.associative_scan({a}, {axis}, larger, reverse={reverse})", kind

    def _movement(self) -> tuple[str, str]:
        a, kind = self._any()
        b, _ = self._any([kind])
        forms = [f"tl.reshape(tl.trans({a}), (R, C))", f"tl.flip({a}, 1)", f"tl.sort({a}, 1)"]
        forms += [f"tl.reshape(tl.permute(tl.join({a}, {b}), (2, 0, 1)), (2 * R, C)).reshape(2, R, C).sum(0)"]
        forms += [f"tl.gather({a}, ((place * 7 + pid) % C).to(tl.int32), 1)"]
        return self._draw(st.sampled_from(forms)), kind

    def _gather(self) -> tuple[str, str]:
        index, _ = self._any(INTEGERS)
        mask = self._draw(st.sampled_from(["", ", mask=inside, other=3", f", mask={self._condition()}, other=0"]))
        return f"tl.load(x + pid * R * C + ({index} % (R * C) + R * C) % (R * C){mask})", "float32"

    def _call(self) -> tuple[str, str]:
        a, kind = self._any()
        b, _ = self._any([kind])
        return f"helper({a}, {b}, FLIP={self._draw(st.booleans())})", kind

    def _dot(self) -> tuple[str, str]:
        a, _ = self._any([*BOUNDS])
        if self._rows != 16 or self._columns != 16:
            return f"-{a}", "float32"
        kind = self._draw(st.sampled_from([kind for kind in self._floats if kind != "float64"]))
        bound = BOUNDS["bfloat16"]
        near = f"tl.minimum(tl.maximum({a}, -{bound}), {bound}).to(tl.{kind})"
        return f"tl.dot({near}, tl.trans({near}))", "float32"

    def _atomic(self) -> tuple[str, str]:
        a, kind = self._any(INTEGERS)
        form = self._draw(st.sampled_from(["add", "max", "xor"]))
        slot = self._draw(st.sampled_from(["place", "place // 2", "place * 0"])) if form == "add" else "place"
        if form == "add":
            self.lines.append(f"    tl.atomic_add(counts + {slot}, {a}.to(tl.int64))")
        return f"{a} + 1", kind

    def _nested(self, name: str, kind: str, indent: str) -> str:
        b, _ = self._any([kind])
        step = self._draw(
            st.sampled_from([f"{name} + {b}", f"{name} - {b}", f"tl.maximum({name}, {b})", f"{b} - {name}"])
        )
        if kind in BOUNDS:
            step = f"tl.minimum(tl.maximum({step}, -{BOUNDS[kind]}), {BOUNDS[kind]}).to(tl.{kind})"
        return f"{indent}{name} = {step}"

    def _fresh(self) -> tuple[str, str]:
        a, kind = self._any()
        name = f"t{len(self.lines)}"
        self.lines.append(f"    {name} = {a}")
        return name, kind

    def _loop(self) -> tuple[str, str]:
        name, kind = self._fresh()
        bounds = self._draw(st.sampled_from(["n", "pid", "0, n, 2", "pid, n", "3"]))
        count = self._draw(st.sampled_from(["range", "tl.range", "tl.static_range"]))
        bounds = "3" if count == "tl.static_range" else bounds
        self.lines.append(f"    for k{name} in {count}({bounds}):")
        self.lines.append(self._nested(name, kind, "        "))
        if self._draw(st.booleans()):
            self.lines.append(f"        if k{name} > {self._number(0, 3)}:")
            self.lines.append(self._nested(name, kind, "            "))
        return name, kind

    def _while(self) -> tuple[str, str]:
        name, kind = self._fresh()
        self.lines += [f"    w{name} = pid", f"    while w{name} < {self._number(0, 6)}:"]
        self.lines += [self._nested(name, kind, "        "), f"        w{name} += {self._number(1, 3)}"]
        return name, kind

    def _branch(self) -> tuple[str, str]:
        name, kind = self._fresh()
        scalar, of = self._any()
        total = f"tl.max(tl.max({scalar}, 1), 0)" if of in BOUNDS else f"tl.min(tl.min({scalar}, 1), 0)"
        condition = self._draw(
            st.sampled_from([f"pid == {self._number(0, 2)}", f"{total} > {self._number(-9, 9)}", "n > 3"])
        )
        self.lines += [f"    if {condition}:", self._nested(name, kind, "        ")]
        if self._draw(st.booleans()):
            self.lines += ["    else:", self._nested(name, kind, "        ")]
        return name, kind


@st.composite
def programs(draw: Any, floats: Sequence[str] = tuple(BOUNDS)) -> Program:
    """Kernels of 1 to 12 statements over tensors of (R, C), with these types of floats."""
    rows, columns = draw(st.sampled_from([(4, 8), (16, 4), (16, 16)]))
    writer = _Writer(draw, rows, columns, floats)
    for _ in range(draw(st.integers(1, 12))):
        writer.statement()
    source = _HEAD + "\n".join([*writer.lines, *writer.stores()]) + "\n"
    return Program(source, rows, columns, draw(st.sampled_from([1, 3])))


def kernel_of(source: str, folder: Path) -> Any:
    """The kernel of a source, which Triton reads from a file."""
    path = folder / f"program_{abs(hash(source))}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


class InterpreterProcess:
    """A process in which Triton's interpreter runs programs; `with` ends it."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"TRITON_INTERPRET": "1"},
        )

    def run(self, program: Program) -> list[torch.Tensor]:
        """The answers of a program: floats, integers and counts. Raises AssertionError if it fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump(program, self._process.stdin)
        self._process.stdin.flush()
        answer = pickle.load(self._process.stdout)
        assert not isinstance(answer, str), f"{answer}\n{program.source}"
        return answer  # type: ignore[no-any-return]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _answer(folder: Path) -> None:
    while True:
        try:
            program = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            arguments = program.arguments()
            kernel_of(program.source, folder)[(program.programs,)](*arguments, **program.constants)
            answer: Any = arguments[2:5]
        except Exception as error:  # whatever it is, the test names it
            answer = f"{type(error).__name__}: {error}"
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.flush()


if __name__ == "__main__":
    sys.modules["support_ir_programs"] = sys.modules["__main__"]
    _answer(Path(sys.argv[1]))
