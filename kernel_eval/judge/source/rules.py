"""The rules that decide whether an answer was computed by kernels, as data: name, description, place of the check.

A candidate that breaks a rule gets the fault `reward_hack`, whatever it computes; `details.rule` names the rule. A task
or a request can relax each rule by name. Checks of the source are here; those of a call are in `provenance.py`, those
of a replay in `proof.py`, and those of memory in `trials.py`. The rules on inputs cannot be broken: if one is relaxed,
the judge calls the candidate only with the inputs that `get_inputs` returns. Nothing is executed here; no torch.

`environment_query` finds sources that could answer differently when they are judged: they use the switch of Triton's
interpreter, the loaded modules, this package, or environment variables. A candidate can still assemble such names at
run time. That does not matter, since no verdict relies on the messages of a candidate's process: the proof and the
build run without it. The rule only names the attempt.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

Nodes = Sequence[ast.AST]  # of a whole source, the module first: walking a tree costs more than any check
SourceCheck = Callable[[Nodes], str | None]


class Rule(NamedTuple):
    """One rule, and where it is checked: the source, a call, a replay of its launches, or the choice of inputs."""

    description: str
    checked_in: Literal["source", "call", "replay", "inputs"]
    check: SourceCheck | None = None


def broken_by_source(tree: ast.Module, relaxed: frozenset[str]) -> tuple[str, str] | None:
    """The first rule that the source breaks, and the violation in words; None if it breaks none."""
    nodes = list(ast.walk(tree))
    for name, rule in RULES.items():
        if rule.check is not None and name not in relaxed:
            violation = rule.check(nodes)
            if violation is not None:
                return name, violation
    return None


def refusal(names: Iterable[str]) -> str | None:
    """An error message if any of these rules does not exist, else None."""
    unknown = sorted(set(names) - RULES.keys())
    return f"relax_rules names {unknown}; the rules are {sorted(RULES)}" if unknown else None


def _no_kernel(nodes: Nodes) -> str | None:
    defines = any("jit" in (getattr(n, "attr", None), getattr(n, "id", None)) for n in nodes)
    return None if defines else "the source defines no Triton kernel"


def _inherited(nodes: Nodes) -> str | None:
    module = nodes[0]
    assert isinstance(module, ast.Module)
    for node in module.body:
        if isinstance(node, ast.ClassDef) and node.name == "ModelNew":
            bases = {ast.unparse(base) for base in node.bases}
            methods = {method.name for method in node.body if isinstance(method, ast.FunctionDef)}
            if "forward" not in methods and "__call__" not in methods and bases:
                return f"ModelNew takes its forward from {', '.join(sorted(bases))}"
            if "Model" in bases and _calls_super_forward(node):
                return "ModelNew calls the forward of the Model that it inherits from"
    return None


def _calls_super_forward(node: ast.AST) -> bool:
    calls = (n.func for n in ast.walk(node) if isinstance(n, ast.Call))
    return any(isinstance(f, ast.Attribute) and f.attr == "forward" and "super()" in ast.unparse(f) for f in calls)


def _empty_kernel(nodes: Nodes) -> str | None:
    for function in _kernels(nodes):
        if all(_does_nothing(statement) for statement in function.body):
            return f"the kernel {function.name} does nothing"
    return None


def _does_nothing(statement: ast.stmt) -> bool:
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_text or isinstance(statement, ast.Pass)


def _fallback(nodes: Nodes) -> str | None:
    for node in nodes:
        if isinstance(node, ast.Try) and any(_launches(statement) for statement in node.body):
            for handler in node.handlers:
                if not any(isinstance(n, ast.Raise) for n in ast.walk(handler)):
                    return f"where a launch fails, something else is done instead (line {handler.lineno})"
    return None


def _patched(nodes: Nodes) -> str | None:
    modules = {
        alias.asname or alias.name.split(".")[0]: alias.name.split(".")[0]
        for node in nodes
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for node in nodes:
        for target in getattr(node, "targets", [getattr(node, "target", None)]):
            if isinstance(target, ast.Attribute):
                path = ast.unparse(target)
                if path.split(".")[0] in modules and not _is_setting(path, modules[path.split(".")[0]]):
                    return f"the source replaces {path} (line {target.lineno})"
    return None


def _is_setting(path: str, module: str) -> bool:
    """Whether a module offers this attribute as a setting, such as `torch.backends.cuda.matmul.allow_tf32`."""
    return module == "torch" and (".backends." in path or ".config." in path)


def _launches(node: ast.AST) -> bool:
    """Whether the node contains a launch, `kernel[grid](…)`."""
    return any(isinstance(n, ast.Call) and isinstance(n.func, ast.Subscript) for n in ast.walk(node))


def _kernels(nodes: Nodes) -> Iterator[ast.FunctionDef]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in node.decorator_list):
            yield node


_SWITCH = "TRITON_INTERPRET"
_REVEALING = frozenset({"sys.modules", "triton.knobs", "triton.runtime.interpreter"})
_HARMLESS_VARIABLES = frozenset({"CUDA_HOME", "CUDA_PATH", "ROCM_HOME", "ROCM_PATH", "TORCH_CUDA_ARCH_LIST"})
_READS = frozenset({"get", "items", "keys", "values", "copy", "pop"})


def environment_query(nodes: Nodes) -> str | None:
    """The first use of a name that reveals in which process the source runs, in words; None without any."""
    for node in nodes:
        name = _revealing_name(node)
        if name is not None:
            return f"the source uses {name} (line {getattr(node, 'lineno', '?')}), which says where it runs"
    return None


def _revealing_name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant):
        return _SWITCH if node.value == _SWITCH else None
    if isinstance(node, ast.Import | ast.ImportFrom):
        return next((path for path in _imported(node) if _is_revealing(path)), None)
    if isinstance(node, ast.Attribute):
        path = ast.unparse(node)
        return path if path in _REVEALING else None
    variable = _variable_read(node)
    return None if variable is None or variable in _HARMLESS_VARIABLES else variable or "the environment"


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    module = node.module if isinstance(node, ast.ImportFrom) else None
    return [f"{module}.{alias.name}" if module else alias.name for alias in node.names]


def _is_revealing(path: str) -> bool:
    return path.split(".")[0] == "weir" or any(f"{path}.".startswith(f"{known}.") for known in _REVEALING)


def _variable_read(node: ast.AST) -> str | None:
    """The environment variable that the node reads; "" if its name is computed, None if the node reads none."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is_environment(node.value):
        return _text(node.slice)
    if isinstance(node, ast.Compare) and any(map(_is_environment, node.comparators)):
        return _text(node.left)
    if isinstance(node, ast.Call):
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)
        of_environment = isinstance(function, ast.Attribute) and _is_environment(function.value)
        if name == "getenv" or (of_environment and name in _READS):
            return _text(node.args[0]) if node.args else ""
    return None


def _is_environment(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute | ast.Name) and ast.unparse(node) in ("os.environ", "environ")


def _text(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


RULES: dict[str, Rule] = {
    "no_kernel_defined": Rule("the source defines a kernel", "source", _no_kernel),
    "inherited_model": Rule("ModelNew has a forward of its own", "source", _inherited),
    "empty_kernel": Rule("a kernel has a body", "source", _empty_kernel),
    "fallback_on_error": Rule("no code catches a failing launch to work without it", "source", _fallback),
    "patched_module": Rule("no part of an imported module is replaced", "source", _patched),
    "asks_where_it_runs": Rule("no code asks which process runs it", "source", environment_query),
    "no_kernel_launched": Rule("each call launches a kernel", "call"),
    "torch_operator": Rule("torch moves what comes from the inputs, and does not compute with it", "call"),
    "foreign_memory": Rule("the answer lies in memory that torch or a kernel filled in the call", "call"),
    "input_changed": Rule("inputs are unchanged, unless the task's own code changes them", "call"),
    "output_is_input": Rule("an output is not the memory of an input, unless the task's own code does that", "call"),
    "output_reused": Rule("the answer to a call is unchanged by later calls", "call"),
    "background_thread": Rule("no thread is left running", "call"),
    "ir_differs": Rule(
        "a second process compiles the same kernels to the same IR, written as the compiler prints it",
        "call",
    ),
    "replay_differs": Rule("the launches of the first call also answer other inputs, without the candidate", "replay"),
    "kernel_did_no_work": Rule(
        "kernels store the answer: at least a tenth of what is not zero in every output, or half of what differs from "
        "a copy of an input or from one value",
        "replay",
    ),
    "varied_inputs": Rule(
        "besides what get_inputs returns, calls get values of other signs, scales and distributions", "inputs"
    ),
    "varied_parameters": Rule("parameters and buffers that start as one constant get other values", "inputs"),
    "varied_shapes": Rule(
        "where sizes can be changed in the task's module, one call gets another one, or two do", "inputs"
    ),
}
