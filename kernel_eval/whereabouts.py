"""Does a source ask where it runs? What answers in one way when it is checked and in another when it counts has to ask.

Looked for are the switch of Triton's interpreter, the modules that a process has loaded, this package, and variables of
the environment. This is a check of the source, and names can be put together while a candidate runs: what it cannot
see, it does not have to, because no verdict rests on what a candidate's process says of itself (`proof.py`,
`build.py`). It names the attempt. Pure; no torch.
"""

from __future__ import annotations

import ast

_SWITCH = "TRITON_INTERPRET"
_TELLING = frozenset({"sys.modules", "triton.knobs", "triton.runtime.interpreter"})
_ALIKE_EVERYWHERE = frozenset({"CUDA_HOME", "CUDA_PATH", "ROCM_HOME", "ROCM_PATH", "TORCH_CUDA_ARCH_LIST"})
_READS = frozenset({"get", "items", "keys", "values", "copy", "pop"})


def asked(tree: ast.Module) -> str | None:
    """The first place where the source asks, in words; None where it does not."""
    for node in ast.walk(tree):
        told = _told_by(node)
        if told is not None:
            return f"the source uses {told} (line {getattr(node, 'lineno', '?')}), which says where it runs"
    return None


def _told_by(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant):
        return _SWITCH if node.value == _SWITCH else None
    if isinstance(node, ast.Import | ast.ImportFrom):
        return next((path for path in _imported(node) if _is_telling(path)), None)
    if isinstance(node, ast.Attribute):
        path = ast.unparse(node)
        return path if path in _TELLING else None
    variable = _variable_read(node)
    return None if variable is None or variable in _ALIKE_EVERYWHERE else variable or "the environment"


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    module = node.module if isinstance(node, ast.ImportFrom) else None
    return [f"{module}.{alias.name}" if module else alias.name for alias in node.names]


def _is_telling(path: str) -> bool:
    return path.split(".")[0] == "weir" or any(f"{path}.".startswith(f"{known}.") for known in _TELLING)


def _variable_read(node: ast.AST) -> str | None:
    """The variable of the environment that is read; "" where that cannot be told, None where none is."""
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
