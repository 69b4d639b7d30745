"""KernelBench's folders as tasks: `level1/` … `level4/` of files `N_Name.py`, each a Model with its inputs.

Its files have no prompts; each task gets the same prompt around its source. `divide_sizes` reduces sizes for small
machines. Invariant: files are parsed and rewritten, never imported; `weir tasks check` shows whether a rewritten task
still runs.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from weir.agents.errors import TaskError
from weir.agents.tasks import REQUIRED, definitions
from weir.kernel_eval.client import KernelTask

LEVELS = (1, 2, 3, 4)
SMALLEST_SIZE = 32  # constants below are counts, strides and kernel sizes rather than extents
_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}
_LARGEST_OPERAND, _LARGEST_EXPONENT = 1 << 32, 40
_FILE = re.compile(r"(\d+)_(\w+)\.py")
_PROMPT = """\
Write a faster version of this PyTorch module with Triton kernels. Define `ModelNew` with the same constructor and \
`forward` as `Model`; your kernels do the computation. Answer with one Python module in a fenced block.

```python
{source}
```
"""


def load_kernelbench(folder: Path, *, levels: Collection[int] = LEVELS, divide_sizes: int = 1) -> list[KernelTask]:
    """The tasks of a KernelBench checkout, of its inner folder, or of one level, by level and number.

    Raises `TaskError` where there are none, or a file is not in KernelBench's form.
    """
    root = folder / "KernelBench" if (folder / "KernelBench").is_dir() else folder
    found = [
        _task(file, level, divide_sizes)
        for level in sorted(levels)
        for file in _numbered(root if root.name == f"level{level}" else root / f"level{level}")
    ]
    if not found:
        raise TaskError(f"no KernelBench tasks in {folder}: expected level1 … level4 with files like 1_Name.py")
    return found


def is_kernelbench(path: Path) -> bool:
    """Whether a path is a KernelBench checkout, its inner folder, or one of the levels."""
    folders = (
        [path / "KernelBench", path, path.parent] if path.name.startswith("level") else [path / "KernelBench", path]
    )
    return path.is_dir() and any((folder / f"level{level}").is_dir() for folder in folders for level in LEVELS)


def divided(source: str, by: int) -> str:
    """The source with the sizes in its module-level assignments divided, none below `SMALLEST_SIZE`.

    Sizes are integers of at least `SMALLEST_SIZE`, products and powers that reach it (`2048 * 2`), and those in tuples
    and lists; also where several names are assigned. Expressions of names follow from the names that they use.
    """
    if by == 1:
        return source
    module = ast.parse(source)
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            node.value = _Divided(by).visit(node.value)
    return ast.unparse(ast.fix_missing_locations(module)) + "\n"


class _Divided(ast.NodeTransformer):
    """Divides the sizes in an expression; leaves calls alone, whose arguments may mean anything."""

    def __init__(self, by: int) -> None:
        self._by = by

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Divide a size; look into tuples, lists and arithmetic."""
        size = _integer(node)
        if size is not None:
            return ast.Constant(max(SMALLEST_SIZE, size // self._by)) if size >= SMALLEST_SIZE else node
        if isinstance(node, ast.Tuple | ast.List):
            return super().generic_visit(node)
        return node


def _integer(node: ast.AST) -> int | None:
    """The value of an integer literal or of arithmetic on such; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if not isinstance(node, ast.BinOp):
        return None
    compute, left, right = _ARITHMETIC.get(type(node.op)), _integer(node.left), _integer(node.right)
    if compute is None or left is None or right is None or not 0 <= right <= _LARGEST_OPERAND:
        return None
    if isinstance(node.op, ast.FloorDiv) and right == 0:
        return None
    if isinstance(node.op, ast.Pow | ast.LShift) and right > _LARGEST_EXPONENT:
        return None
    return compute(left, right)


def _numbered(folder: Path) -> Iterator[Path]:
    files = [(int(named[1]), file) for file in folder.glob("*.py") if (named := _FILE.fullmatch(file.name))]
    return (file for _, file in sorted(files))


def _task(file: Path, level: int, divide_sizes: int) -> KernelTask:
    task_id = f"kernelbench_level{level}_{file.stem}"
    try:
        source = divided(file.read_text(), divide_sizes)
        missing = [name for name in REQUIRED if name not in definitions(ast.parse(source))]
    except (OSError, UnicodeDecodeError, SyntaxError) as error:
        raise TaskError(f"task {task_id}: cannot read {file}: {error}") from error
    if missing:
        raise TaskError(f"task {task_id}: {', '.join(missing)} not defined in {file}")
    prompt = _PROMPT.format(source=source.rstrip())
    return KernelTask(task_id=task_id, prompt=prompt, reference_src=source, family=f"kernelbench_level{level}")
