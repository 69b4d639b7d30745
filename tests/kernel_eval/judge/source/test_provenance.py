"""The pure parts of the proof: the language of kernels, the analysis of traces."""

from __future__ import annotations

import ast
import importlib
import types
from pathlib import Path

import pytest
import torch
from triton.language import core
from triton.runtime.jit import JITCallable

from weir.kernel_eval.ipc.tensor_arena import Arena
from weir.kernel_eval.ipc.trace import Launch, Operator, Place, Storage, StorageKind, Trace
from weir.kernel_eval.judge.source import provenance, rules
from weir.kernel_eval.judge.source.kernel_source import VALUE_ATTRIBUTES, KernelSource, NotFound, NotTriton
from weir.kernel_eval.replay.values import operator_of

NONE: frozenset[str] = frozenset()
HEAD = "import torch, os\nimport numpy as np\nimport triton\nimport triton.language as tl\n"
KERNEL = """
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    {line}
    tl.store(out_ptr + offsets, offsets, mask=offsets < n)
"""


def extract(line: str, before: str = "") -> str:
    source = HEAD + before + KERNEL.replace("{line}", line)
    return KernelSource(ast.parse(source)).extract([("kernel", 0)])


@pytest.mark.parametrize(
    ("line", "before"),
    [
        ("x = tl.load(x_ptr + offsets).to(tl.float32).sum(axis=0)", ""),
        ("x = helper(offsets)", "@triton.jit\ndef helper(x):\n    return x * SCALE\nSCALE = tl.constexpr(2)\n"),
        ("x = tl.math.exp(float('-inf')) + math.pi", "import math\n"),
        ("x = libdevice.tanh(offsets)", "from triton.language.extra import libdevice\n"),
        ("x = tl.extra.cuda.libdevice.tanh(offsets)", ""),
        ("x = n * SCALE", "import math\nTWO = 2\nSCALE = tl.constexpr(math.sqrt(TWO / math.pi) * 2 ** TWO)\n"),
        ("x = [tl.load(p + offsets) for p in (x_ptr, x_ptr)]", ""),
        ("at = (x_ptr + offsets, offsets < n)\n    x = tl.load(*at)", ""),
        ("for i in range(0, n, BLOCK):\n        n -= triton.cdiv(n, 2) if n > SMALL else 1", "SMALL = 2 - 1\n"),
        ("x: tl.constexpr = x_ptr.dtype.element_ty", ""),
        ("tl.static_assert(BLOCK > 1, f'{BLOCK} is small')", ""),
    ],
)
def test_a_kernel_may_say_what_triton_knows(line: str, before: str) -> None:
    found = ast.parse(extract(line, before))  # what is refused raises NotTriton
    assert "kernel" in {node.name for node in found.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(
    "line",
    [
        "torch.relu(x_ptr)",
        "x = 1 if isinstance(n, tl.constexpr) else 2",
        "os.system('true')",
        "x = np.zeros(3)",
        "x = held",
        "import os",
        "x = __import__('os')",
        "x = (lambda: 1)()",
        "offsets.handle.data = 1",
        "x = offsets.handle",
        "x = offsets.__class__",
        "tl.load = tl.store",
        "x = tl.core.builtins",
        "x = tl.semantic",
        "x = tl.extra.pkgutil",
        "x = tl.math.wraps",
        "x = triton.runtime",
        "x = getattr(tl, 'core')",
        "x = eval('1')",
        "global held",
        "offsets[0] = 1",
        "with n: pass",
        "try:\n        n = 1\n    except Exception:\n        n = 2",
        "x = (y := 1)",
        "def inner(): pass",
        "x = plain(1)",
        "x = tl.str_to_ty(f'tensordesc<fp32[16],1>', 0)",  # evaluates what stands for 1
        "x = [getattr for getattr in (n,)]",
        "hasattr = n",
        "x = f'{BLOCK:{n}}'",
        "x = f'{BLOCK:\\x7bn\\x7d}'",
    ],
)
def test_a_kernel_may_say_nothing_else(line: str) -> None:
    with pytest.raises(NotTriton):
        extract(line, "held = {}\ndef plain(x):\n    return os\n")


def test_only_kernels_and_what_they_use_are_taken_out_of_a_source() -> None:
    source = HEAD + "os.system('true')\nA = 1\nB = os.environ\n" + KERNEL.replace("{line}", "n = n + A")
    source = source.replace("@triton.jit", "@triton.autotune(configs=os.x, key=[])\n@triton.jit")
    taken = KernelSource(ast.parse(source)).extract([("kernel", 0)])
    assert "os" not in {node.id for node in ast.walk(ast.parse(taken)) if isinstance(node, ast.Name)}
    assert "A = 1" in taken
    assert "autotune" not in taken


@pytest.mark.parametrize(
    "value", ["2 ** 2 ** 9", "1 << 99", "'a' * 9", "A * A * A * A * A", "(1,) + (2,)", "math.factorial(9)", "1 / 0"]
)
def test_constants_that_are_no_number_of_a_sensible_size_are_none_of_triton(value: str) -> None:
    with pytest.raises(NotTriton, match="uses B"):
        extract("x = B", f"import math\nA = 1 << 15\nB = {value}\n")


@pytest.mark.parametrize(
    "value", ["(held or tl).constexpr(1.0)", "(held or math).sqrt(2.0)", "held.float(1)", "held[0].pi", "tl.str_to_ty"]
)
def test_what_is_called_or_taken_from_anything_but_triton_and_math_is_no_constant(value: str) -> None:
    with pytest.raises(NotTriton, match="uses B"):
        extract("x = B", f"import math\nheld = [1]\nB = {value}\n")


@pytest.mark.parametrize("default", ["exec('1')", "exec", "n", "(1).real", "[m for m in ()]", "tl.core", "lambda: 1"])
def test_a_default_is_a_constant_whatever_the_kernels_own_names_are(default: str) -> None:
    source = HEAD + KERNEL.replace("tl.constexpr", f"tl.constexpr = {default}").replace("{line}", "exec = n")
    with pytest.raises(NotTriton, match="default of the kernel"):
        KernelSource(ast.parse(source)).extract([("kernel", 0)])


@pytest.mark.parametrize(
    "default", ["16", "None", "-1.5", "tl.float32", "triton.language.float32", "A", "float('inf')"]
)
def test_a_default_may_be_any_constant(default: str) -> None:
    source = HEAD + "A = 2\n" + KERNEL.replace("tl.constexpr", f"tl.constexpr = {default}").replace("{line}", "n = n")
    text = KernelSource(ast.parse(source)).extract([("kernel", 0)])
    assert f"={default}" in text and ("A = 2" in text) == (default == "A")


def test_names_that_kernels_may_use_are_of_triton_and_run_none_of_their_text() -> None:
    """Everything that is neither a builtin of the language nor a kernel, a type or a number."""
    others = {}
    for module in ("triton.language", "triton.language.math", "triton.language.extra.cuda.libdevice"):
        for name, value in vars(importlib.import_module(module)).items():
            of_language = core.is_builtin(value) or isinstance(value, JITCallable | core.dtype | int)
            if not of_language and KernelSource(ast.parse(f"from {module} import {name}")).stands_for(name):
                others[name] = value
    assert all(isinstance(value, type) for value in others.values() if not isinstance(value, types.ModuleType)), others
    assert {name for name, value in others.items() if isinstance(value, types.ModuleType)} <= {"math", "extra"}


def test_a_constant_that_is_assigned_again_makes_no_others_large() -> None:
    before = "A = 2\nB = A * A\nC = B * B\nA = 1 << 40\n"
    with pytest.raises(NotTriton, match="constant B is no number of a sensible size"):
        extract("x = C", before)


def test_a_kernel_that_is_not_in_the_source_is_not_found() -> None:
    with pytest.raises(NotFound, match="made_up"):
        KernelSource(ast.parse(HEAD)).extract([("made_up", 0)])


def test_attributes_that_kernels_may_use_are_those_of_tensors_and_lead_nowhere_else() -> None:
    public = {name for name in dir(core.tensor) if not name.startswith("_")}
    assert public <= VALUE_ATTRIBUTES
    assert not VALUE_ATTRIBUTES & {"handle", "data", "fn", "builder"}


def place(storage: int) -> Place:
    return Place(storage, "float32", (4,), (1,), 0)


def operator(name: str, read: tuple[int, ...], written: int) -> Operator:
    return Operator(f"aten.{name}.default", tuple(place(s) for s in read), {}, (place(written),))


def cast(dtype: str, to: str, read: int, written: int) -> Operator:
    given, made = (Place(storage, kind, (4,), (1,), 0) for storage, kind in ((read, dtype), (written, to)))
    return Operator("aten._to_copy.default", (given,), {}, (made,))


def launch(*storages: int) -> Launch:
    return Launch("kernel", 1, (1,), {f"a{i}": place(s) for i, s in enumerate(storages)})


def trace(*steps: Operator | Launch, output: int, kinds: tuple[str, ...] = ("input", "fresh", "fresh")) -> Trace:
    storages = tuple(Storage(kind, 0, 16) for kind in kinds)  # type: ignore[arg-type]
    return Trace(storages, steps, (place(output),))


@pytest.mark.parametrize(
    ("seen", "rule"),
    [
        (trace(launch(0, 1), output=1), None),
        (trace(cast("float32", "int32", 0, 1), launch(1, 2), output=2), "torch_operator"),
        (trace(cast("float32", "float16", 0, 1), launch(1, 2), output=2), None),
        (trace(cast("int64", "float32", 0, 1), launch(1, 2), output=2), None),
        (trace(operator("from_file", (), 1), launch(1, 2), output=2), "foreign_memory"),
        (trace(operator("made_up", (), 1), operator("relu", (1,), 1), launch(1, 2), output=2), "foreign_memory"),
        (trace(operator("ones", (), 1), operator("resize_", (1,), 1), launch(1, 2), output=2), "foreign_memory"),
        (trace(operator("hann_window", (), 1), operator("relu", (1,), 1), launch(0, 1, 2), output=2), None),
        (trace(operator("clone", (0,), 1), launch(1, 2), output=2), None),
        (trace(launch(0, 1), operator("cat", (1,), 2), output=2), None),
        (trace(operator("relu", (0,), 1), launch(0, 2), output=2), None),  # looked at, and not used
        (trace(operator("relu", (0,), 1), output=1), "no_kernel_launched"),
        (trace(launch(0, 1), operator("relu", (0,), 2), output=2), "torch_operator"),
        (trace(launch(0, 1), operator("sum", (1,), 2), output=2), "torch_operator"),
        (trace(operator("relu", (0,), 1), launch(1, 2), output=2), "torch_operator"),
        (trace(operator("relu", (0,), 1), operator("clone", (1,), 2), launch(0), output=2), "torch_operator"),
        (trace(operator("mul", (1,), 2), launch(0, 2), output=2, kinds=("input", "state", "fresh")), None),
        (trace(launch(0, 1), output=2, kinds=("input", "fresh", "unknown")), "foreign_memory"),
        (trace(launch(2, 1), output=1, kinds=("input", "fresh", "unknown")), "foreign_memory"),
    ],
)
def test_a_trace_shows_what_the_answer_was_made_by(seen: Trace, rule: str | None) -> None:
    broken = provenance.broken_by(seen, NONE)
    assert (broken and broken[0]) == rule
    assert rule is None or provenance.broken_by(seen, frozenset(rules.RULES)) is None


def test_state_and_inputs_of_a_replay_lie_in_two_lists() -> None:
    arena = Arena([[torch.ones(2)], [torch.zeros(3, dtype=torch.uint8)]], [torch.empty(2)], 64)
    assert [len(part.items) for part in arena.spec.arguments.items] == [1, 1]  # type: ignore[union-attr]
    arena.close()


CASTS = [
    ("float32", "bfloat16", False),
    ("float64", "float16", False),
    ("int64", "int32", False),
    ("bool", "int8", False),
    ("int8", "float32", False),
    ("uint8", "int16", False),
    ("float8_e4m3fn", "float32", False),
    ("float32", "int32", True),
    ("float32", "bool", True),
    ("int32", "bool", True),
    ("int32", "int8", True),
    ("int64", "uint8", True),
    ("int8", "uint8", True),
    ("float32", "float8_e4m3fn", True),
]


@pytest.mark.parametrize(("source", "target", "computes"), CASTS)
def test_a_cast_that_drops_values_is_a_computation(source: str, target: str, computes: bool) -> None:
    x, made = Place(0, source, (4,), (1,), 0), Place(1, target, (4,), (1,), 0)
    cast = Operator("aten._to_copy.default", (x,), {}, (made,))
    trace = Trace((Storage("input", 0, 32), Storage("fresh", 0, 32)), (cast, launched(made)), (made,))
    broken = provenance.broken_by(trace, NONE)
    assert (broken and broken[0]) == ("torch_operator" if computes else None)


@pytest.mark.parametrize(("changing", "size", "computes"), [((), 64, False), ((3,), 64, True), ((3,), 8, False)])
def test_what_earlier_calls_left_in_the_state_is_no_constant(
    changing: tuple[int, ...], size: int, computes: bool
) -> None:
    state, made = Place(0, "float32", (2,), (1,), 0), Place(1, "float32", (2,), (1,), 0)
    product = Operator("aten.mul.Tensor", (state, state), {}, (made,))
    trace = Trace((Storage("state", 3, size), Storage("fresh", 0, 64)), (product, launched(made)), (made,))
    broken = provenance.broken_by(trace, NONE, changing=changing)
    assert (broken and broken[0]) == ("torch_operator" if computes else None)


def test_a_copy_that_is_a_view_of_another_type_is_a_computation() -> None:
    x, made = Place(0, "int64", (4,), (1,), 0), Place(1, "float16", (16,), (1,), 0)
    copied = Operator("aten.view_copy.dtype", (x,), {}, (made,))
    trace = Trace((Storage("input", 0, 32), Storage("fresh", 0, 32)), (copied, launched(made)), (made,))
    assert (provenance.broken_by(trace, NONE) or ("",))[0] == "torch_operator"


MOVED = ["flip", "roll", "index.Tensor", "index_select", "gather", "unfold_copy", "im2col", "reflection_pad1d", "clone"]


@pytest.mark.parametrize("name", MOVED)
def test_what_picks_elements_moves_them_which_is_the_work_of_a_task_that_only_moves(name: str) -> None:
    full = f"aten.{name}" if "." in name else f"aten.{name}.default"
    x, index, made = (Place(at, kind, (4,), (1,), 0) for at, kind in ((0, "float32"), (1, "int64"), (2, "float32")))
    storages = (Storage("input", 0, 16), Storage("state", 0, 32), Storage("fresh", 0, 16))
    trace = Trace(storages, (Operator(full, (x, index), {}, (made,)), launched(made)), (made,))
    assert provenance.broken_by(trace, NONE) is None
    broken = provenance.broken_by(trace, NONE, only_moves=True)
    assert broken is not None
    assert broken[0] == "torch_operator"


@pytest.mark.parametrize("name", ["index.Tensor", "index_select.default", "gather.default"])
@pytest.mark.parametrize("table", ["input", "state"])
@pytest.mark.parametrize("by_name", [False, True])
def test_a_look_up_where_inputs_say_is_a_computation(name: str, table: StorageKind, by_name: bool) -> None:
    x, index, made = (Place(at, kind, (4,), (1,), 0) for at, kind in ((0, "float32"), (1, "int64"), (2, "float32")))
    storages = (Storage(table, 0, 16), Storage("input", 0, 32), Storage("fresh", 0, 16))
    given = ((), {"index": index, "self": x}) if by_name else ((x, index), {})
    trace = Trace(storages, (Operator(f"aten.{name}", *given, (made,)), launched(made)), (made,))
    assert provenance.broken_by(trace, NONE) == ("torch_operator", f"torch computed a part of the answer: aten.{name}")


def test_a_table_that_a_kernel_copied_is_no_input() -> None:
    table, index, made = (Place(at, kind, (4,), (1,), 0) for at, kind in ((0, "half"), (1, "int64"), (2, "half")))
    storages = (Storage("fresh", 0, 16), Storage("input", 0, 32), Storage("fresh", 0, 16))
    trace = Trace(storages, (launched(table), Operator("aten.index.Tensor", (table, index), {}, (made,))), (made,))
    broken = provenance.broken_by(trace, NONE)
    assert broken is not None
    assert broken[0] == "torch_operator"


@pytest.mark.parametrize("name", ["aten.fill_.Tensor", "aten.lift_fresh_copy.default", "aten.copy_.default"])
def test_a_cast_is_one_in_every_operator_that_takes_values_of_a_tensor(name: str) -> None:
    x, made = Place(0, "float32", (1,), (1,), 0), Place(1, "int32", (1,), (1,), 0)
    storages = (Storage("input", 0, 4), Storage("fresh", 0, 4))
    arguments = (made, x) if "_." in name else (x,)
    trace = Trace(storages, (Operator(name, arguments, {}, (made,)), launched(made)), (made,))
    broken = provenance.broken_by(trace, NONE)
    assert broken is not None
    assert broken[0] == "torch_operator"


PARTS = [  # what torch reads of an input of a dtype, what it makes of it, and whether that is a computation
    ("int64", "int32", "int64", True),  # the sign of its lower half
    ("int64", "int64", "int32", False),
    ("int32", "uint32", "int64", True),
    ("float32", "int16", "int16", True),
    ("float32", "int32", "int32", False),  # whole values, moved
    ("bool", "uint8", "int32", False),
    ("uint8", "bool", "int32", True),
    ("complex64", "float32", "float32", False),
]


@pytest.mark.parametrize(("dtype", "seen_as", "made_as", "computes"), PARTS)
@pytest.mark.parametrize("copied_first", [False, True])
def test_torch_takes_no_values_apart(
    dtype: str, seen_as: str, made_as: str, computes: bool, copied_first: bool
) -> None:
    x, copy, made = (Place(at, kind, (4,), (1,), 0) for at, kind in ((0, dtype), (1, dtype), (2, made_as)))
    storages = (Storage("input", 0, 64), Storage("fresh", 0, 64), Storage("fresh", 0, 64))
    steps = [Operator("aten.clone.default", (x,), {}, (copy,))] if copied_first else []
    part = Place(len(steps), seen_as, (4,), (1,), 0)
    steps.append(Operator("aten._to_copy.default", (part,), {}, (made,)))
    trace = Trace(storages, (*steps, launched(made)), (made,))
    broken = provenance.broken_by(trace, NONE, given=[dtype])
    assert (broken is not None) == computes
    assert broken is None or broken[0] == "torch_operator"


def test_torch_puts_no_values_together_from_parts() -> None:
    x, made, half = (Place(at, kind, (4,), (1,), 0) for at, kind in ((0, "int32"), (1, "int64"), (1, "int32")))
    storages = (Storage("input", 0, 16), Storage("fresh", 0, 32))
    zeros = Operator("aten.zeros.default", (), {}, (made,))
    trace = Trace(storages, (zeros, Operator("aten.copy_.default", (half, x), {}, (half,)), launched(made)), (made,))
    broken = provenance.broken_by(trace, NONE, given=["int32"])
    assert broken is not None
    assert broken[0] == "torch_operator"
    unfilled = Operator("aten.empty.memory_format", (), {}, (made,))
    assert provenance.broken_by(trace.__class__(storages, (unfilled, *trace.steps[1:]), (made,)), NONE) is None


def launched(place: Place) -> Launch:
    return Launch("k", 1, (1,), {}, {}, 0, (place,))


def test_the_docs_list_every_rule_with_what_it_says() -> None:
    documented = (Path(__file__).parents[4] / "docs" / "kernel_eval.md").read_text()
    for name, rule in rules.RULES.items():
        assert f"| `{name}` | {rule.description} | {rule.checked_in} |" in documented


@pytest.mark.parametrize(
    "line",
    [
        "mode = os.environ.get('TRITON_INTERPRET')",
        "mode = os.environ['HOME']",
        "mode = 'LD_PRELOAD' in os.environ",
        "mode = os.getenv(name)",
        "mode = dict(**os.environ.copy())",
        "from os import getenv\nmode = getenv('X')",
        "from sys import modules",
        "mode = sys.modules",
        "import triton.knobs",
        "mode = triton.knobs.runtime.interpret",
        "from triton.runtime import interpreter",
        "from triton.runtime.interpreter import InterpretedFunction",
        "import weir.kernel_eval.worker.worker as w",
        "os.environ['TRITON_INTERPRET'] = '0'",
    ],
)
def test_a_source_that_asks_where_it_runs_breaks_a_rule(line: str) -> None:
    tree = ast.parse(HEAD + line + KERNEL.replace("{line}", "n = n + 1"))
    seen = rules.broken_by_source(tree, NONE)
    assert seen is not None
    assert seen[0] == "asks_where_it_runs"
    assert rules.broken_by_source(tree, frozenset({"asks_where_it_runs"})) is None


@pytest.mark.parametrize(
    "line",
    [
        "os.environ['TORCH_CUDA_ARCH_LIST'] = '9.0'",
        "home = os.environ.get('CUDA_HOME')",
        "# TRITON_INTERPRET=1 python this.py",
        "'Run it with TRITON_INTERPRET=1 to debug.'",
        "from triton.runtime import driver\nsms = driver.active.utils.get_device_properties(0)",
        "target = triton.runtime.driver.active.get_current_target()",
        "import sys\nsys.setrecursionlimit(2000)",
    ],
)
def test_what_honest_sources_ask_for_breaks_none(line: str) -> None:
    source = HEAD + line + KERNEL.replace("{line}", "n = n + 1") + "class ModelNew:\n    def forward(self): ...\n"
    assert rules.broken_by_source(ast.parse(source), NONE) is None


FORGED = Operator(
    "aten.copy_.default", (Place(0, "float32", (2,), (1,), 0), Place(1, "float32", (2,), (1,), 0)), {}, ()
)


@pytest.mark.parametrize(("said", "runs"), [((0,), True), ((2,), False), ((0, 2), True), ((), True)])
def test_an_operator_is_not_run_again_where_its_record_hides_what_it_writes_to(
    said: tuple[int, ...], runs: bool
) -> None:
    results = tuple(Place(storage, "float32", (2,), (1,), 0) for storage in said)
    step = Operator(FORGED.name, FORGED.arguments, {}, results)
    if runs:
        assert operator_of(step) is torch.ops.aten.copy_.default
    else:
        with pytest.raises(ValueError, match="does not name"):
            operator_of(step)


def test_a_tensor_among_the_options_of_a_launch_holds_what_stems_from_the_inputs() -> None:
    hidden = Place(1, "float32", (2,), (1,), 0)
    given = Place(0, "float32", (2,), (1,), 0)
    steps = (
        Launch("copy", 1, (1,), {"x_ptr": given}, {"out_ptr": hidden}),
        Operator("aten.relu_.default", (hidden,), {}, (hidden,)),
    )
    trace = Trace((Storage("input", 0, 8), Storage("fresh", 0, 8)), steps, (hidden,))
    assert (provenance.broken_by(trace, NONE) or ("",))[0] == "torch_operator"
