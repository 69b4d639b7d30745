"""The pages and the code name only files, headings and pages that there are.

`mkdocs build --strict` (scripts/check) holds the links inside docs/. This holds those that a code host shows, from the
pages at the repository's root as well, and every name of a file in pages, docstrings and comments.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from support_house import CODE, FOLDERS, PAGES, ROOT, prose_of

SHELL = sorted(
    [*(path for path in (ROOT / "scripts").iterdir() if path.is_file() and not path.suffix), ROOT / ".ci/run"]
)
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)
# A file of Python or Markdown, in folders or not; or any path below scripts/ and .ci/. No part of a URL or a glob.
NAMED = re.compile(
    r"(?<![\w/.*<>-])(?:\./)?"
    r"((?:\.?[\w-]+/)*[\w-]+\.(?:py|md)\b|(?:scripts|\.ci)/[\w-]+(?:/[\w-]+)*(?:\.\w+)?)"
    r"(?![\w/*(-]|\.\w)"
)
MODULE = re.compile(r"\bweir((?:\.\w+)+)")

NOT_OURS = {
    "__init__.py": "what the part folders must not have",
    "N_Name.py": "how KernelBench names its files",
    "slime/utils/types.py": "a file of slime",
    "stats.py": "a file of the example of a task",
    "test_stats.py": "a file of the example of a task",
}


@functools.cache
def names_in_the_tree() -> set[str]:
    """Every path of a file or folder, and every end of such a path: store/log.py is also log.py."""
    paths = [path for folder in (*FOLDERS, ".ci") for path in (ROOT / folder).rglob("*")]
    parts = [path.relative_to(ROOT).parts for path in (*paths, *ROOT.iterdir())]
    return {"/".join(names[i:]) for names in parts if "__pycache__" not in names for i in range(len(names))}


def anchors(page: Path) -> set[str]:
    """The anchors that code hosts give to headings: lower case, without punctuation, hyphens for spaces."""
    headings = HEADING.findall(FENCED.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def missing_names(text: str) -> list[str]:
    return [name for name in NAMED.findall(text) if name not in NOT_OURS and name not in names_in_the_tree()]


def is_importable(parts: Sequence[str]) -> bool:
    """Whether `weir` has this module, or a module that defines or imports the first name behind its own."""
    for length in range(len(parts), 0, -1):
        module = ROOT.joinpath(*parts[:length])
        if module.with_suffix(".py").exists():
            named = parts[length : length + 1]
            return not named or re.search(rf"\b{named[0]}\b", module.with_suffix(".py").read_text()) is not None
    return ROOT.joinpath(*parts).is_dir()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in LINK.findall(FENCED.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), f"{page.relative_to(ROOT)} links to {link}: there is no such file"
        assert not anchor or anchor in anchors(target), f"{page.relative_to(ROOT)} links to {link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_only_files_that_there_are(page: Path) -> None:
    assert not missing_names(page.read_text()), page.relative_to(ROOT)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_only_modules_that_there_are(page: Path) -> None:
    named = [found.strip(".").split(".") for found in MODULE.findall(page.read_text())]
    wrong = [".".join(parts) for parts in named if parts[0] in FOLDERS and not is_importable(parts)]
    assert not wrong, page.relative_to(ROOT)


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_and_comments_name_only_files_that_there_are(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} names {name}"
        for path in CODE
        if path.relative_to(ROOT).parts[0] == folder
        for line, text in prose_of(path)
        for name in missing_names(text)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", SHELL, ids=lambda path: path.name)
def test_comments_of_shell_scripts_name_only_files_that_there_are(path: Path) -> None:
    comments = [line for line in path.read_text().splitlines() if line.startswith("#")]
    assert not missing_names("\n".join(comments[1:]))


def test_what_is_looked_for_is_found() -> None:
    text = (
        "see gone.py, `store/gone.py`, docs/gone.md#a, ./scripts/gone and README.md, test_*.py, http://a/b.py, x.python"
    )
    assert missing_names(text) == ["gone.py", "store/gone.py", "docs/gone.md", "scripts/gone"]
    assert not is_importable(["store", "reader", "gone"]) and is_importable(["store", "reader", "connect"])
