"""Finalists: an answer whose own processes sent other IR than its source gives, both alike, is found by a third one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support_rounds import add_sessions, make_record
from typer.testing import CliRunner

from weir.kernel_eval.client import KernelTask
from weir.scripts.cli.main import app
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.rows import EvaluationRow
from weir.store.config import StoreConfig

TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x): return torch.relu(x) * 3
def get_inputs(): return [torch.randn(64)]
"""
KERNEL = """
import torch, triton, triton.language as tl
SCALE = tl.constexpr(3.0)
@triton.jit
def helper(x):
    return tl.maximum(x, 0.0)
@triton.jit
def scaled(x_ptr, out_ptr, n, DTYPE: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, (BODY).to(DTYPE), mask=at < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        scaled[(1,)](x, out, x.numel(), tl.float32, SIZE=64)
        return out
"""
HONEST = KERNEL.replace("BODY", "helper(x) * SCALE")
# the source stores zeros; each process of the candidate compiles another text under its name
FORGED = KERNEL.replace("BODY", "x * 0").replace(
    "class ModelNew",
    '''scaled._unsafe_update_src("""
def scaled(x_ptr, out_ptr, n, DTYPE: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, (tl.maximum(x, 0.0) * 3.0).to(DTYPE), mask=at < n)
""")
class ModelNew''',
)
# What such a candidate can say to the recompiler, so that this one lies as well: Python in a constant, and in a type of
# which Triton evaluates a part
IN_THE_RECOMPILER = """
import sys
from weir.kernel_eval.ipc.messages import Recompiled
from weir.kernel_eval.recording import recompiler
sent = recompiler.send
recompiler.send = lambda channel, message: sent(channel, Recompiled((TEXT,)))
"""
FORGING = """
        import gc
        capture = next(thing for thing in gc.get_objects() if type(thing).__name__ == "LaunchCapture")
        code = IN_THE_RECOMPILER.replace("TEXT", repr(capture._irs[0].text))
        made, evil = capture._made_of[0], f"tensordesc<fp32[16],exec(bytes.fromhex('{code.encode().hex()}'))"
        parts = {name: getattr(made, name) for name in made.__struct_fields__}
        capture._made_of[0] = type(made)(**parts | {"signature": made.signature | {"n": evil}})
        return out
"""
PYTHON = 'exec("from weir.kernel_eval.recording import recompiler; recompiler.compiler.compile = None")'
IN_A_CONSTANT = HONEST.replace("SCALE = tl.constexpr(3.0)", f"SCALE = ({PYTHON} or tl).constexpr(3.0)")
IN_A_TYPE = FORGED.replace("        return out\n", f"{FORGING}") + f"\nIN_THE_RECOMPILER = {IN_THE_RECOMPILER!r}\n"
CLOSURE = """
import torch, triton, triton.language as tl
def make(scale):
    @triton.jit
    def scaled(x_ptr, out_ptr, SIZE: tl.constexpr):
        at = tl.arange(0, SIZE)
        tl.store(out_ptr + at, tl.maximum(tl.load(x_ptr + at), 0.0) * scale)
    return scaled
KERNEL = make(tl.constexpr(3.0))
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        KERNEL[(1,)](x, out, SIZE=64)
        return out
"""


def test_an_answer_whose_processes_lie_alike_is_found(server: Any) -> None:
    assert server.evaluate(FORGED, TASK)["correct"]  # what it sent is right, and is what was built
    reply = server.evaluate(FORGED, TASK, recompile=True)
    assert (reply["fault"], reply["details"]["rule"]) == ("reward_hack", "ir_differs")
    assert "from the source of the kernels alone" in reply["fault_message"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (IN_A_CONSTANT, "a kernel uses SCALE"),
        (IN_A_TYPE, "n of scaled:7 has a type that is none of Triton's"),
    ],
)
def test_no_python_of_a_candidate_runs_where_its_kernels_are_compiled_again(
    source: str, reason: str, server: Any
) -> None:
    reply = server.evaluate(source, TASK, recompile=True)
    assert reply["correct"] and reply["details"]["recompiled"].startswith(f"not shown: {reason}"), reply


def test_an_honest_answer_is_the_same_when_it_is_compiled_again(server: Any) -> None:
    reply = server.evaluate(HONEST, TASK, recompile=True)
    assert reply["correct"] and reply["details"]["recompiled"] == "same", reply


def test_a_kernel_that_cannot_be_taken_from_its_source_shows_nothing_and_is_no_fault(server: Any) -> None:
    reply = server.evaluate(CLOSURE, TASK, recompile=True)
    assert reply["correct"] and reply["details"]["recompiled"].startswith("not shown: a kernel uses scale"), reply


def add(store: StoreConfig, group_id: str, answers: list[tuple[str, float]]) -> None:
    """A group whose answers were judged with these rewards; 1 and more is correct."""
    task = KernelTask(task_id=group_id, prompt="write it", reference_src=TASK)
    ids, names = np.arange(4), [f"{group_id}-{i}" for i in range(len(answers))]
    calls = [
        make_record(f"call-{name}", name, group_id, ids, ids, np.zeros(4), text=f"```\n{source}```")
        for name, (source, _) in zip(names, answers, strict=True)
    ]
    add_sessions(store, group_id, [[call] for call in calls], task=task)
    rows = [
        EvaluationRow(
            call_id=call.call_id, session_id=call.session_id, group_id=group_id, round_id=None, content_hash="h",
            compiled=True, correct=reward >= 1, fault=None, raw_reward=reward, result={}, created_us=1,
        )
        for call, (_, reward) in zip(calls, answers, strict=True)
    ]  # fmt: skip
    catalog = Catalog.open(store)
    catalog.add_evaluations(rows)
    catalog.close()


def test_the_command_judges_the_best_of_each_group_again(server: Any, tmp_path: Path) -> None:
    store = StoreConfig(root=str(tmp_path / "store"))
    add(store, "forged", [(HONEST, 1.0), (FORGED, 1.5), (HONEST, 0.3)])
    add(store, "honest", [(HONEST, 1.0)])
    add(store, "closure", [(CLOSURE, 1.0)])
    config = tmp_path / "weir.toml"
    config.write_text(f'[agents]\nkernel_eval_url = "{server.url}"\n')
    command = ["finalists", "--json", "--trials", "1", "--root", str(store.folder), "--config", str(config)]
    done = CliRunner().invoke(app, command)
    lines = {line["call_id"]: line for line in map(json.loads, done.stdout.splitlines())}
    states = {name: (line["confirmed"], line["refused"]) for name, line in lines.items()}
    assert states == {
        "call-forged-1": (False, True),
        "call-honest-0": (True, False),
        "call-closure-0": (False, False),
    }, done.output
    assert "ir_differs" in lines["call-forged-1"]["recompiled"]
    assert done.exit_code == 1
    none = CliRunner().invoke(app, [*command, "--round", "7"])
    assert "round 7 has no answer that was judged correct" in str(none.exception or none.output)
