"""What can be said of a candidate before it runs, from its syntax tree. The rules are data.

`UNSUPPORTED_NAMES`: a source that uses one of these cannot be judged by the interpreter, which has no such thing or
is silently wrong; that is the server's fault and not the candidate's. `rules` of a request are checked by name in
`RULES`; a rule that is broken makes the candidate a reward_hack. The rules that need a run (a kernel was launched,
inputs are unchanged, outputs are its own) are checked by the judge. Nothing is executed here, but a hostile source
can be slow to parse, so only a judge calls this.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

UNSUPPORTED_NAMES = {
    "inline_asm_elementwise": "the interpreter has no assembler",
    "load_inline": "there is no CUDA compiler",
}


def parse(source: str) -> ast.Module:
    """Raises SyntaxError for whatever Python would not compile."""
    try:
        tree = ast.parse(source)
        compile(tree, "candidate.py", "exec")
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error) or type(error).__name__) from error
    return tree


def find_unsupported(tree: ast.Module) -> str | None:
    """Why the interpreter cannot judge this source, or None."""
    for node in ast.walk(tree):
        for name in _names(node):
            if name in UNSUPPORTED_NAMES:
                return f"{name} (line {getattr(node, 'lineno', '?')}): {UNSUPPORTED_NAMES[name]}"
    return None


def find_broken_rule(tree: ast.Module, rules: tuple[str, ...]) -> tuple[str, str] | None:
    """The first of `rules` that the source breaks, with what was seen; None if it breaks none."""
    for rule in rules:
        seen = RULES[rule](tree)
        if seen is not None:
            return rule, seen
    return None


def _names(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.Attribute):
        return (node.attr,)
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.ImportFrom):
        return tuple(alias.name for alias in node.names)
    return ()


def _has_no_kernel(tree: ast.Module) -> str | None:
    return None if any("jit" in _names(node) for node in ast.walk(tree)) else "the source defines no Triton kernel"


RULES: dict[str, Callable[[ast.Module], str | None]] = {"no_kernel_defined": _has_no_kernel}
DEFAULT_RULES = ("no_kernel_defined",)
