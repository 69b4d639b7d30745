"""What can be said of a candidate before it runs, from its syntax tree: whether it can be judged here at all.

`UNSUPPORTED_NAMES`: a source that uses one of these cannot be judged by the interpreter, which has no such thing or
is silently wrong; that is the server's fault and not the candidate's. What a candidate must not do is in `rules.py`.
Nothing is executed here, but a hostile source can be slow to parse, so only a judge calls this.
"""

from __future__ import annotations

import ast

from weir.kernel_eval.judgement import Found
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage

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


def parsed(source: str) -> ast.Module:
    """`parse`, with a mistake as the candidate's fault. Raises `Found`."""
    try:
        return parse(source)
    except SyntaxError as error:
        where = f" (line {error.lineno})" if error.lineno else ""
        raise Found(Stage.NOTHING, Fault.SYNTAX_ERROR, f"{error.msg}{where}", phase="load") from None


def find_unsupported(tree: ast.Module) -> str | None:
    """Why the interpreter cannot judge this source, or None."""
    for node in ast.walk(tree):
        for name in _names(node):
            if name in UNSUPPORTED_NAMES:
                return f"{name} (line {getattr(node, 'lineno', '?')}): {UNSUPPORTED_NAMES[name]}"
    return None


def mentions(tree: ast.Module, name: str) -> bool:
    """Whether a name or an attribute of that name is used anywhere."""
    return any(name in _names(node) for node in ast.walk(tree))


def _names(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.Attribute):
        return (node.attr,)
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.ImportFrom):
        return tuple(alias.name for alias in node.names)
    return ()
