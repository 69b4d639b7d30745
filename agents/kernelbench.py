"""KernelBench's folders as tasks: `level1/` … `level4/` of files `N_Name.py`, each a Model with its inputs.

Its files have no prompts; each task gets the same prompt around its source. `divide_sizes` reduces sizes for small
machines. Invariant: files are parsed and rewritten, never imported; `weir tasks check` shows whether a rewritten task
still runs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from weir.agents.errors import TaskError
from weir.agents.tasks import REQUIRED, definitions
from weir.kernel_eval.client import KernelTask

LEVELS = (1, 2, 3, 4)
SMALLEST_SIZE = 32  # constants below are counts, strides and kernel sizes rather than extents
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
    """The source with module-level integers of at least `SMALLEST_SIZE` divided, none below `SMALLEST_SIZE`."""
    if by == 1:
        return source
    module = ast.parse(source)
    for node in module.body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Constant) and type(value.value) is int and value.value >= SMALLEST_SIZE:
            value.value = max(SMALLEST_SIZE, value.value // by)
    return ast.unparse(module) + "\n"


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
