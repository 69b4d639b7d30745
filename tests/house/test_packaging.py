"""The explicit package list, compared with the tree, and the wheel that is built from it."""

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOT_PACKAGED = {"tests", "docs"}


def tracked_sources() -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {name for name in listed.stdout.split() if name.split("/")[0] not in NOT_PACKAGED}


def test_the_package_list_names_every_folder_that_holds_code() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = {"weir." + str(Path(name).parent).replace("/", ".") for name in tracked_sources() if "/" in name}
    data = {"weir.agents.examples"}  # task files: package data, never imported
    assert set(project["tool"]["setuptools"]["packages"]) == folders - data


def test_no_part_folder_is_a_regular_package_so_that_none_shadows_an_installed_one() -> None:
    assert not [name for name in tracked_sources() if name.count("/") <= 1 and name.endswith("__init__.py")]


def test_the_wheel_holds_every_source_under_weir_and_nothing_at_the_top_level(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        tmp_path,
        ".",
    ]
    fresh = tmp_path / "build.cfg"  # what an earlier build left in the tree would be packaged again
    fresh.write_text(f"[build]\nbuild_base = {tmp_path / 'build'}\n")
    subprocess.run(command, cwd=ROOT, env=os.environ | {"DIST_EXTRA_CONFIG": str(fresh)}, check=True)
    (wheel,) = tmp_path.glob("weir_rl-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    packaged = {name for name in names if name.endswith(".py")}
    assert packaged == {f"weir/{name}" for name in tracked_sources()}
    assert {name.split("/")[0].split("-")[0] for name in names} == {"weir", "weir_rl"}
