"""Kernels that are drawn from a grammar: run as TTIR, by Triton's interpreter and, where there is one, by a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from support_ir_programs import BOUNDS, InterpreterProcess, Program, kernel_of, programs
from support_ttir import launch

FEW = settings(
    max_examples=250,
    deadline=None,
    derandomize=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
BUT_BFLOAT16 = tuple(kind for kind in BOUNDS if kind != "bfloat16")  # Triton's interpreter reads its bits wrongly
NAMES = ("floats", "integers", "counts")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def interpreter(folder: Path) -> Iterator[InterpreterProcess]:
    with InterpreterProcess(folder) as started:
        yield started


def check(program: Program, expected: list[torch.Tensor], got: list[torch.Tensor]) -> None:
    for name, a, b in zip(NAMES, expected, got, strict=True):
        same = (a == b).all()
        where = (a != b).nonzero().flatten()[:1]
        assert same, f"{name} {where.tolist()}: {a[where].tolist()}, as TTIR {b[where].tolist()}\n{program.source}"


def as_ttir(program: Program, folder: Path) -> list[torch.Tensor]:
    arguments = program.arguments()
    launch(kernel_of(program.source, folder), (program.programs,), arguments, program.constants)
    return arguments[2:5]


@FEW
@given(program=programs(BUT_BFLOAT16))
def test_programs_have_the_answers_of_tritons_interpreter(
    program: Program, folder: Path, interpreter: InterpreterProcess
) -> None:
    check(program, interpreter.run(program), as_ttir(program, folder))


@pytest.mark.gpu
@FEW
@given(program=programs())
def test_programs_have_the_answers_of_a_gpu(program: Program, folder: Path) -> None:
    arguments = [a.cuda() if isinstance(a, torch.Tensor) else a for a in program.arguments()]
    kernel_of(program.source, folder)[(program.programs,)](*arguments, **program.constants)
    check(program, [a.cpu() for a in arguments[2:5]], as_ttir(program, folder))
