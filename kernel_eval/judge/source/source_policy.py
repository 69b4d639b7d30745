"""Parses a candidate's source and checks the rules on it, before the candidate runs.

Invariant: a source that cannot be analysed (too long, nested too deeply, too slow to traverse, impossible to print
again) is a fault of the candidate, never of its judge. Nothing is executed here.
"""

from __future__ import annotations

import ast
import contextlib
import signal
import types
from collections.abc import Iterator

from weir.kernel_eval.judge.channel.faults import FaultDetected, rule_broken
from weir.kernel_eval.judge.source import rules
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage

_MOST_CHARS = 1 << 20
_READING_S = 10.0


class _TooSlow(BaseException):
    """The analysis takes too long. A BaseException, so that no other handler catches it."""


def checked(source: str, relaxed: frozenset[str]) -> ast.Module:
    """The syntax tree of a source. Raises `FaultDetected` for a syntax error, and for the first rule that it breaks."""
    with reading():
        try:
            tree = parse(source)
        except SyntaxError as error:
            where = f" (line {error.lineno})" if error.lineno else ""
            raise FaultDetected(Stage.NOTHING, Fault.SYNTAX_ERROR, f"{error.msg}{where}", phase="load") from None
        violation = rules.broken_by_source(tree, relaxed)
    if violation is not None:
        raise rule_broken(*violation)
    return tree


def parse(source: str) -> ast.Module:
    """The syntax tree of a source. Raises SyntaxError if Python does not compile it."""
    if len(source) > _MOST_CHARS:
        raise SyntaxError(f"the source has {len(source)} characters, at most {_MOST_CHARS} are read")
    try:
        tree = ast.parse(source)
        compile(tree, "candidate.py", "exec")
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error) or type(error).__name__) from error
    return tree


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Limit the time of an analysis of a candidate's tree. Raises `FaultDetected` if it fails or takes too long."""
    previous = signal.signal(signal.SIGALRM, _expire)
    signal.setitimer(signal.ITIMER_REAL, _READING_S)
    try:
        yield
    except (RecursionError, ValueError, MemoryError) as error:
        message = f"the source cannot be looked through: {type(error).__name__}: {error}"
        raise FaultDetected(Stage.NOTHING, Fault.SYNTAX_ERROR, message, phase="load") from error
    except _TooSlow:
        message = f"the source cannot be looked through within {_READING_S:g} s"
        raise FaultDetected(Stage.NOTHING, Fault.SYNTAX_ERROR, message, phase="load") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def mentions(tree: ast.Module, name: str) -> bool:
    """Whether the tree uses a name or an attribute of that name."""
    return any(name in _names(node) for node in ast.walk(tree))


def _expire(signum: int, frame: types.FrameType | None) -> None:
    raise _TooSlow


def _names(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.Attribute):
        return (node.attr,)
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.ImportFrom):
        return tuple(alias.name for alias in node.names)
    return ()
