"""Hooks of mkdocs.yml: the repository's own pages become pages of the site, and `weir.*` can be read from its sources.

Pages at the repository's root (ARCHITECTURE.md and others) are added under their names in lower case. Links work in
both places, on a code host and on the site, because they are rewritten here: a root page's `docs/store.md` and a page's
`../ARCHITECTURE.md` point into the site. A link to any other file of the repository is an error of
`mkdocs build --strict`.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
ROOT_PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
_FROM_ROOT = re.compile(r"\]\(docs/")
_TO_ROOT_PAGE = re.compile(rf"\]\((?:\.\./)?({'|'.join(map(re.escape, ROOT_PAGES))})")


def on_startup(**_: Any) -> None:
    """Make the link tree under which the part folders are sub-packages of `weir`, as scripts/check does for mypy."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    links = ROOT / ".types" / "weir"
    links.mkdir(parents=True, exist_ok=True)
    for part in {package.split(".")[1] for package in project["tool"]["setuptools"]["packages"]}:
        if not (links / part).is_symlink():
            (links / part).symlink_to(Path("../..") / part)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the repository's root."""
    for name in ROOT_PAGES:
        text = _FROM_ROOT.sub("](", (ROOT / name).read_text())
        files.append(File.generated(config, name.lower(), content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point links to a page of the repository's root at its page on the site."""
    return _TO_ROOT_PAGE.sub(lambda found: f"]({found[1].lower()}", markdown)
