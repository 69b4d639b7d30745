"""The client's types: JSDoc that TypeScript's compiler accepts in its strict mode."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

TYPESCRIPT = "7.0.2"
UI = Path(__file__).parents[2] / "ui"

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm, which fetches TypeScript's compiler")


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TypeScript's compiler."""
    folder = tmp_path_factory.mktemp("typescript")
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder, f"typescript@{TYPESCRIPT}"]
    subprocess.run(command, check=True)
    return folder / "node_modules" / ".bin" / "tsc"


def checked(compiler: Path, project: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([compiler, "--project", project], capture_output=True, text=True)


def test_the_client_has_no_error_of_types(compiler: Path) -> None:
    done = checked(compiler, UI / "jsconfig.json")
    assert done.returncode == 0, done.stdout


def test_an_error_of_types_is_found(compiler: Path, tmp_path: Path) -> None:
    shutil.copytree(UI / "static", tmp_path / "static")
    shutil.copy(UI / "jsconfig.json", tmp_path)
    with (tmp_path / "static" / "series.js").open("a") as file:
        file.write('\n/** @type {number} */\nexport const wrong = "text";\n')
    done = checked(compiler, tmp_path / "jsconfig.json")
    assert done.returncode != 0 and "series.js" in done.stdout
