"""Folders, files and functions stay small enough to be read."""

from __future__ import annotations

import ast
from collections import Counter

from support_house import PARTS, ROOT, sources

FILES_IN_A_FOLDER = 20
LINES_OF_A_FILE = 450
LINES_OF_A_FUNCTION = 60


def test_a_folder_holds_few_files() -> None:
    num_files = Counter(path.parent for part in PARTS for path in sources(part))
    assert num_files
    assert not {str(folder): n for folder, n in num_files.items() if n > FILES_IN_A_FOLDER}


def test_a_file_holds_one_idea() -> None:
    lengths = {str(path): (ROOT / path).read_text().count("\n") for part in PARTS for path in sources(part)}
    assert not {path: n for path, n in lengths.items() if n > LINES_OF_A_FILE}


def test_a_function_does_one_step() -> None:
    too_long = {}
    for part in PARTS:
        for path in sources(part):
            for found in ast.walk(ast.parse((ROOT / path).read_text())):
                if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
                    assert found.end_lineno is not None
                    length = found.end_lineno - found.lineno + 1
                    if length > LINES_OF_A_FUNCTION:
                        too_long[f"{path}:{found.name}"] = length
    assert not too_long
